//! Tests of the URLs of nodes. Two spellings of one address give the same name, the error for an invalid URL
//! has the fix, and no password is ever shown.

use quorate::node::Node;
use quorate::redis::RedisNode;

#[test]
fn two_spellings_of_one_address_have_the_same_name() {
    for (url, name) in [
        ("redis://cache", "redis://cache:6379/0"),
        ("redis://cache/", "redis://cache:6379/0"),
        ("REDIS://Cache:6379/0", "redis://cache:6379/0"),
        ("valkey://cache", "redis://cache:6379/0"),
        ("redis://user:secret@cache:6380/3", "redis://cache:6380/3"),
        ("redis://:secret@cache/3/", "redis://cache:6379/3"),
        ("rediss://cache", "rediss://cache:6379/0"),
        ("valkeys://u:p@CACHE:1/2", "rediss://cache:1/2"),
        ("redis://127.0.0.1", "redis://127.0.0.1:6379/0"),
        ("redis://[::1]:7/1", "redis://[::1]:7/1"),
        ("redis://[0:0:0:0:0:0:0:1]:7/1", "redis://[::1]:7/1"),
        ("unix:///run/redis.sock", "unix:///run/redis.sock?db=0"),
        ("redis+unix:///run/redis.sock?db=4&user=u&pass=secret", "unix:///run/redis.sock?db=4"),
    ] {
        let node = RedisNode::parse(url).unwrap();
        assert_eq!(node.name(), name, "{url}");
        let shown = format!("{node:?}");
        assert!(shown.contains(name) && !shown.contains("secret"), "{shown}");
        assert_eq!(RedisNode::parse(node.name()).unwrap().name(), name, "a name is a URL of itself");
    }
}

#[test]
fn an_invalid_url_is_reported_with_its_value_and_the_fix() {
    for (url, what, shown) in [
        ("", "write redis:// in front", ""),
        ("cache:6379", "write redis:// in front", "cache…"),
        ("http://cache:80", "not redis://, rediss:// or unix://", "http://cache…"),
        ("redis://cache:port/0", "write redis://USER:PASSWORD@HOST", "redis://cache…"),
        ("redis://cache/abc", "database that is not a number", "redis://cache/abc"),
        ("redis://cache/-1", "below 0", "redis://cache/-1"),
        ("redis://", "cannot be connected to", "redis://"),
        ("redis://0.0.0.0:6379", "host that is not 0.0.0.0", "redis://0.0.0.0…"),
        ("redis://cache/0#insecure", "certificates are always checked", "redis://cache/0…"),
        ("redis://cache/0?db=2", "option after ?", "redis://cache/0…"),
        ("redis://cache/0?ca_file=/ca.pem", "is not TLS; write rediss://", "redis://cache/0…"),
        ("unix:///run/redis.sock?key_file=/k", "is not TLS; write rediss://", "unix:///run/redis.sock…"),
        ("rediss://cache/0?cafile=/ca.pem", "ca_file, cert_file and key_file", "rediss://cache/0…"),
        ("rediss://cache/0?ca_file=", "without a file", "rediss://cache/0…"),
        ("rediss://cache/0?ca_file=/a&ca_file=/b", "twice", "rediss://cache/0…"),
        ("rediss://cache/0?cert_file=/a", "no key_file", "rediss://cache/0…"),
        ("rediss://cache/0?key_file=/a", "no cert_file", "rediss://cache/0…"),
        ("unix:///run/redis.sock?database=2", "option after ?", "unix:///run/redis.sock…"),
        ("unix:///run/redis.sock?db=two", "cannot be connected to", "unix:///run/redis.sock…"),
    ] {
        let error = RedisNode::parse(url).expect_err(url).to_string();
        assert!(error.contains(what), "{url}: {error}");
        assert!(error.contains(&format!("URL is {shown:?}, which ")), "{url}: {error}");
    }
}

/// Checks the known mistakes that users make in URLs with a password.
#[test]
fn no_password_is_shown_even_if_the_url_is_unreadable() {
    let secrets = [
        "hunter2", "hunter2!", "hun/ter2", "hun#ter2", "hun?ter2", "hun@ter2", "hun%ter2", "hun ter2",
        "hun:ter2", "31337",
    ];
    for secret in secrets {
        for url in [
            format!("redis://user:{secret}@cache:port"),
            format!("redis://:{secret}@cache:6379/abc"),
            format!("redis://:{secret}@cache:99999"),
            format!("redis://user:{secret}"),
            format!("redis://user:{secret}@"),
            format!("redis://user:{secret}cache:6379/0"),
            format!("http://user:{secret}@cache"),
            format!("user:{secret}@cache:6379"),
            format!(":{secret}@cache:6379"),
            format!("redis:/user:{secret}@cache:6379"),
            format!("redis//user:{secret}@cache:6379"),
            format!("redis://:{secret}@cache/0?ssl=true"),
            format!("redis://:{secret}@cache/0#insecure"),
            format!("redis://cache/0?pass={secret}"),
            format!("unix:///run/redis.sock?pass={secret}&db=x"),
            format!("unix:///run/redis.sock?password={secret}"),
            format!("unix://host/run/redis.sock?pass={secret}"),
        ] {
            // These two URLs have another meaning. The first may have the password `hun` and the host `ter2…`,
            // and the second may be a host and a port.
            if url.starts_with("redis://user:hun@ter2") || url == "redis://user:31337" {
                continue;
            }
            let shown = match RedisNode::parse(&url) {
                Ok(node) => format!("{node:?} {}", node.name()),
                Err(error) => format!("{error} {error:?}"),
            };
            // If a part of the password with four or more letters is shown, that counts as a leak, like the
            // whole password.
            for part in secret.split(|c: char| !c.is_ascii_alphanumeric()).chain([secret]) {
                assert!(part.len() < 4 || !shown.contains(part), "{url}: {shown}");
            }
        }
    }
}
