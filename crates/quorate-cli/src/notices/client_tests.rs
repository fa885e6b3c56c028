use super::*;
use quorate::env::{Env, ScopedTask};
use std::net::SocketAddr;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpListener,
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{ServerConfig, pki_types::PrivateKeyDer},
};

/// A server that answers one request with a status, and returns what it has got.
async fn server(status: &str, tls: Option<TlsAcceptor>) -> (SocketAddr, ScopedTask<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer =
        format!("HTTP/1.1 {status}\r\nLocation: http://{address}/other\r\nContent-Length: 0\r\n\r\n");
    let task = Env::system().spawn_scoped(async move {
        let (stream, _) = listener.accept().await.unwrap();
        match tls {
            Some(tls) => match tls.accept(stream).await {
                Ok(stream) => serve(stream, &answer).await,
                Err(_) => String::new(),
            },
            None => serve(stream, &answer).await,
        }
    });
    (address, task)
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, answer: &str) -> String {
    let mut got = Vec::new();
    while !got.ends_with(b"{}") {
        let mut part = [0; 1024];
        let n = stream.read(&mut part).await.unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&part[..n]);
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    String::from_utf8(got).unwrap()
}

fn source(url: &str) -> SecretSource {
    SecretSource::Url(Secret(Url::parse(url).unwrap()))
}

async fn post(
    url: &SecretSource,
    headers: &BTreeMap<String, PathBuf>,
    ca_file: Option<&Path>,
) -> Result<(), String> {
    let call = Call {
        method: "POST",
        url,
        suffix: "/start",
        header_files: headers,
        headers: Vec::new(),
        ca_file,
        content_type: JSON,
        body: "{}".into(),
    };
    let client = Client::start().unwrap();
    let env = Env::system();
    let answer = env.before(env.now() + std::time::Duration::from_secs(20), client.post(call)).await;
    let answer = answer.unwrap();
    if let Err(error) = &answer {
        assert!(!error.contains("hush"), "a secret shows: {error}");
    }
    answer
}

#[tokio::test]
async fn a_secret_header_is_sent_over_tls_to_a_trusted_server_only() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (ca, wrong) = (write("ca.pem", &made.cert.pem()), write("other.pem", &other.cert.pem()));
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let headers = BTreeMap::from([("Authorization".to_owned(), write("token", "Bearer hush\n"))]);

    let (address, got) = server("200 OK", Some(acceptor.clone())).await;
    let url = write("url", &format!("https://localhost:{}/hook-hush?a=b\n", address.port()));
    assert_eq!(post(&SecretSource::File(url), &headers, Some(&ca)).await, Ok(()));
    let got = got.await.unwrap();
    assert!(got.starts_with("POST /hook-hush/start?a=b HTTP/1.1\r\n"), "{got}");
    assert!(
        got.contains("authorization: Bearer hush\r\n")
            && got.contains(&format!("host: localhost:{}\r\n", address.port())),
        "{got}"
    );

    for ca in [Some(&*wrong), None] {
        let (address, got) = server("200 OK", Some(acceptor.clone())).await;
        let url = source(&format!("https://localhost:{}/hush", address.port()));
        let error = post(&url, &headers, ca).await.unwrap_err();
        assert!(error.starts_with("TLS failed: "), "{error}");
        assert_eq!(got.await.unwrap(), "", "nothing was sent");
    }
    let url = write("plain-url", "http://192.0.2.1/hush");
    let error = post(&SecretSource::File(url), &headers, None).await.unwrap_err();
    assert!(error.contains("not sent without TLS"), "{error}");
    let missing = post(&source("https://localhost:1/hush"), &headers, Some(Path::new("/missing.pem"))).await;
    assert!(missing.is_err());
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_an_error_says_the_status() {
    let none = BTreeMap::new();
    for (status, why) in [
        ("302 Found", "302 Found; redirects are not followed"),
        ("500 Internal Server Error", "it answered 500"),
        ("404 Not Found", "it answered 404"),
    ] {
        let (address, got) = server(status, None).await;
        let error = post(&source(&format!("http://{address}/hush")), &none, None).await.unwrap_err();
        assert!(error.contains(why), "{error}");
        assert!(got.await.unwrap().starts_with("POST /hush/start HTTP/1.1\r\n"));
    }
    let (address, got) = server("204 No Content", None).await;
    assert_eq!(post(&source(&format!("http://{address}")), &none, None).await, Ok(()));
    assert!(got.await.unwrap().starts_with("POST /start HTTP/1.1\r\n"));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = post(&source(&format!("http://{closed}/hush")), &none, None).await.unwrap_err();
    assert!(error.starts_with("cannot connect: "), "{error}");
}

#[tokio::test]
async fn a_request_that_is_dropped_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, none) = (source(&format!("http://{}/hush", listener.local_addr().unwrap())), BTreeMap::new());
    let mut request = Box::pin(post(&url, &none, None));
    let receive = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut got = Vec::new();
        while !got.ends_with(b"{}") {
            assert!(stream.read_buf(&mut got).await.unwrap() > 0, "the request ended early");
        }
        stream
    };
    let mut stream = tokio::select! {
        answer = &mut request => panic!("{answer:?}"),
        stream = receive => stream,
    };
    drop(request);
    let env = Env::system();
    let end = env.before(env.now() + std::time::Duration::from_secs(20), stream.read_u8()).await;
    assert!(end.is_some_and(|end| end.is_err()), "the connection is still open");
}
