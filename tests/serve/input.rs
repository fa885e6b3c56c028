//! Bad input: the status, and an error that names the field, the value, the reason and the fix.

use crate::sidecar::{Sidecar, path};
use serde_json::json;

#[test]
fn bad_input_has_the_right_status_and_an_error_with_the_fix() {
    let sidecar = Sidecar::new(3, "serve = { leases_per_client = 4 }\n");
    let client = sidecar.client();
    let lease = sidecar.take("held");
    let of_lease = path(&lease);
    let complete = format!("{of_lease}/complete");
    let long = format!("{{\"locks\": [{}]}}", "\"a\", ".repeat(209_800) + "\"a\"");
    let name = "x".repeat(600);
    let named = json!({ "lock": name }).to_string();
    let leases = "/api/v1/leases";
    let unknown_id = "/api/v1/leases/00000000000000000000000000000000";
    for (method, path, body, status, parts) in [
        ("POST", leases, "", 400, &["lock is missing", "{\"lock\": \"nightly\"}"][..]),
        ("POST", leases, "nightly", 400, &["not a JSON object"]),
        ("POST", leases, "[]", 400, &["not a JSON object"]),
        ("POST", leases, "{\"lok\": \"a\"}", 400, &["unknown parameter \"lok\"", "did you mean lock?"]),
        ("POST", leases, "{\"lock\": \"\"}", 400, &["\"\"", "empty"]),
        ("POST", leases, &named, 400, &["xxx", "512"]),
        ("POST", leases, "{\"lock\": \"election/g\"}", 400, &["\"election/g\"", "keeps for itself"]),
        ("POST", leases, "{\"lock\": [\"a\"]}", 400, &["\"lock\" is not a string or a number"]),
        ("POST", leases, "{\"lock\": \"a\", \"locks\": [\"b\"]}", 400, &["both given", "one of them"]),
        ("POST", leases, "{\"locks\": \"a\"}", 400, &["\"locks\" is not a list of strings"]),
        ("POST", leases, "{\"locks\": [\"a\", 7]}", 400, &["\"locks\" is not a list of strings"]),
        ("POST", leases, "{\"locks\": []}", 400, &["lock is missing"]),
        ("POST", leases, "{\"lock\": \"a\", \"shared\": \"yes\"}", 400, &["\"shared\" is not true or false"]),
        ("POST", leases, "{\"locks\": [\"a\", \"b\"], \"shared\": true}", 400, &["for one lock"]),
        ("POST", leases, "{\"lock\": \"a\", \"ttl\": \"soon\"}", 400, &["ttl \"soon\"", "like 500ms or 10s"]),
        ("POST", leases, "{\"lock\": \"a\", \"ttl\": \"1y\"}", 400, &["ttl", "max_ttl"]),
        ("POST", leases, "{\"lock\": \"a\", \"keep\": \"1ms\"}", 400, &["keep \"1ms\"", "from 100ms to 1h"]),
        ("POST", leases, "{\"lock\": \"a\", \"wait\": 7}", 400, &["wait \"7\"", "from 0s to 30s"]),
        ("POST", leases, &long, 413, &["the body is longer than 1048576 bytes"]),
        (
            "POST",
            leases,
            "{\"locks\": [\"a\", \"b\", \"c\", \"d\"]}",
            429,
            &["more than 4", "leases_per_client"],
        ),
        ("GET", unknown_id, "", 404, &["it is lost", "acquire the lock again"]),
        ("DELETE", unknown_id, "", 404, &["it is lost"]),
        ("GET", "/api/v1/leases/nightly", "", 404, &["it is lost"]),
        ("GET", "/api/v1/leases/%FF", "", 404, &["it is lost"]),
        ("GET", &format!("{of_lease}?wait=1h"), "", 400, &["wait \"1h\"", "from 0s to 30s"]),
        ("GET", &format!("{of_lease}?seen=gone"), "", 400, &["seen \"gone\"", "held or step_down"]),
        ("GET", &format!("{of_lease}?wat=1s"), "", 400, &["unknown parameter \"wat\"", "did you mean wait?"]),
        ("POST", &complete, "{}", 400, &["messages has 0 ids", "order-17"]),
        ("POST", "/api/v1/claims/a%2Fb", "{\"messages\": [\"1\"]}", 400, &["a/b", "slash"]),
        ("POST", "/api/v1/claims/s", "{\"messages\": [\"\"]}", 400, &["empty"]),
        (
            "POST",
            "/api/v1/claims/s",
            "{\"messages\": [\"1\"], \"retention\": \"0s\"}",
            400,
            &["retention \"0s\""],
        ),
        ("PUT", &of_lease, "", 405, &["no method PUT", "Allow"]),
        ("GET", "/api/v1/leasez", "", 404, &["there is no path"]),
    ] {
        let answer = client.request(method, path, "", body);
        let shown = format!("{method} {path} {}: {answer}", &body[..body.len().min(100)]);
        assert_eq!(answer.status, status, "{shown}");
        let error = answer.error();
        assert!(parts.iter().all(|part| error.contains(part)), "{parts:?}: {shown}");
    }
    sidecar.ask(&lease, "").expect(200);
}
