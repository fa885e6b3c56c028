//! A job that sends an HTTP request at each tick.

use crate::{
    config::{HttpJob, JobConfig, Secret},
    notices::{Call, Client},
    time::rfc3339,
};
use axum::body::Bytes;
use quorate::{plain::plain, scheduler::RunContext};

/// The number of bytes at the end of an answer that the error of a failed run repeats.
const SHOWN: usize = 200;

/// Sends the request of one attempt. Its headers have the fencing token, and a key that is the same for all attempts of the
/// run. An answer of 200 to 299 is a success.
pub(super) async fn send(
    client: &Client,
    group: &str,
    job: &JobConfig,
    http: &HttpJob,
    tick: &RunContext,
) -> Result<(), String> {
    let HttpJob { method, url, header_files, ca_file, content_type, body: Secret(body) } = http;
    let token = tick.fencing_token().map_err(|error| error.to_string())?;
    let headers = vec![
        ("quorate-job", encoded(&job.name)),
        ("quorate-tick", rfc3339(tick.scheduled_at())),
        ("quorate-cause", tick.cause().to_string()),
        ("quorate-attempt", tick.attempt().to_string()),
        ("quorate-fencing-token", token.to_string()),
        ("idempotency-key", idempotency_key(group, job, tick)),
    ];
    let call = Call {
        method,
        url,
        suffix: "",
        header_files,
        headers,
        ca_file: ca_file.as_deref(),
        content_type,
        body: Bytes::from(body.clone()),
    };
    let most = job.rules.keep_output.max(SHOWN);
    let answer = tokio::select! { biased;
        () = tick.cancellation_token().cancelled() => return Err("cancelled before the answer came".to_owned()),
        answer = client.send(call, most) => answer?,
    };
    let text = String::from_utf8_lossy(&answer.tail);
    let most = job.rules.keep_output;
    if most > 0 {
        tick.set_output(end_of(&text, most));
    }
    if answer.status.is_success() {
        return Ok(());
    }
    let refused = answer.refused();
    match plain(end_of(&text, SHOWN), SHOWN) {
        shown if shown.is_empty() => Err(refused),
        shown => Err(format!("{refused}: {shown}")),
    }
}

/// Returns the key of a run, which is the same for all its attempts, on all workers.
fn idempotency_key(group: &str, job: &JobConfig, tick: &RunContext) -> String {
    let request = tick.request().map_or_else(String::new, |id| format!("/{id}"));
    format!("{}/{}/{}{request}", encoded(group), encoded(&job.name), rfc3339(tick.scheduled_at()))
}

/// Returns a name as a header can have it.
fn encoded(name: &str) -> String {
    url::form_urlencoded::byte_serialize(name.as_bytes()).collect()
}

/// Returns the last `most` bytes of a text, or a little less.
fn end_of(text: &str, most: usize) -> &str {
    let mut from = text.len().saturating_sub(most);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    &text[from..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_into_headers_and_ends_of_texts_are_whole() {
        assert_eq!(encoded("büro/нічний"), "b%C3%BCro%2F%D0%BD%D1%96%D1%87%D0%BD%D0%B8%D0%B9");
        assert_eq!((end_of("aé", 1), end_of("aé", 2), end_of("aé", 9)), ("", "é", "aé"));
    }
}
