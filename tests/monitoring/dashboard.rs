//! A real Prometheus scrapes three daemons and a sidecar. Every expression of the dashboard returns data.

use crate::documents::{path, read};
use quorate_testkit::cannot_run;
use quorate_tests::support::{Http, JobBench, PATIENCE, Receiver, until};
use serde_json::Value;
use std::{
    net::TcpListener,
    process::{Child, Command, Stdio},
};

/// A Prometheus. Dropping it kills the process.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    /// Starts a server that scrapes these daemons each second, with the committed rules. Returns `None` if it is not
    /// installed.
    fn start(bench: &JobBench, daemons: &[Http]) -> Option<Self> {
        let targets: Vec<String> = daemons.iter().map(|http| format!("\"{}\"", http.address())).collect();
        let example = read("config/prometheus/prometheus.yml");
        let scrape = example.split("scrape_configs:").nth(1).expect("a scrape configuration");
        let scrape = scrape.split("    static_configs:").next().unwrap_or_default().replace("15s", "1s");
        let config = format!(
            "global: {{ scrape_interval: 1s, evaluation_interval: 1s }}\nrule_files: [{:?}]\nscrape_configs:{scrape}    static_configs: [{{ targets: [{}] }}]\n",
            path("config/prometheus/quorate-alerts.yml").display().to_string(),
            targets.join(", ")
        );
        let file = bench.program.write("prometheus.yml", &config);
        let port =
            TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("an address").port();
        let mut command = Command::new("prometheus");
        command
            .args(["--log.level=error", &format!("--config.file={file}")])
            .arg(format!("--storage.tsdb.path={}", bench.program.dir().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command.spawn().ok().map(|child| Self { child, port })
    }

    /// Returns the result of a query; `None` if it has no data yet. A value that is not a number is no data.
    fn query(&self, expression: &str) -> Option<Vec<Value>> {
        let text: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let answer = self.get(&format!("/api/v1/query?query={text}"))?;
        assert_eq!(answer["status"], "success", "{expression}: {answer}");
        let result = answer["data"]["result"].as_array()?.clone();
        let has_data = |series: &Value| series["value"][1].as_str().is_some_and(|value| value != "NaN");
        result.iter().any(has_data).then_some(result)
    }

    fn get(&self, path: &str) -> Option<Value> {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the expressions of all panels.
fn expressions(dashboard: &Value) -> Vec<String> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect()
}

#[test]
fn every_expression_of_the_dashboard_returns_data_from_a_real_prometheus() {
    let receiver = Receiver::start(Some(200));
    let settings = format!(
        "http = {{ listen = \"127.0.0.1:0\" }}\n\
         [[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\nexpect_within = \"1m\"\nping = \"{0}\"\n\
         [[job]]\nname = \"bad\"\nevery = \"1s\"\ncommand = [\"false\"]\n\
         [[notify]]\non = [\"failed\"]\nwebhook = \"{0}\"\n",
        receiver.url("/")
    );
    let bench = JobBench::new(env!("CARGO_BIN_EXE_quorate-under-test"), &settings);
    let socket = format!("unix:{}", bench.program.file("q.sock").display());
    let sidecar = bench.program.start(["serve", "--config", &bench.config, "--listen", &socket]);
    let daemons = [bench.daemon(), bench.daemon(), bench.daemon(), sidecar];
    let clients: Vec<Http> = daemons.iter().map(Http::of).collect();
    let Some(prometheus) = Prometheus::start(&bench, &clients) else {
        return cannot_run(
            "monitoring::dashboard::every_expression_of_the_dashboard_returns_data_from_a_real_prometheus",
            "prometheus is missing; install it",
        );
    };
    let dashboard: Value = serde_json::from_str(&read("config/grafana/quorate.json")).expect("JSON");
    let all = expressions(&dashboard);
    assert!(all.len() > 25, "{all:?}");
    for expression in all {
        let filled =
            expression.replace("$group", "g").replace("$job", ".*").replace("$__rate_interval", "10s");
        assert!(!filled.contains('$'), "a variable that is not known: {filled}");
        until(&format!("data for {filled}"), PATIENCE, || prometheus.query(&filled));
    }
    let leaders = prometheus.query("sum by (group) (quorate_leader)").expect("leaders");
    assert_eq!(
        (&leaders[0]["metric"]["group"], &leaders[0]["value"][1]),
        (&"g".into(), &"1".into()),
        "{leaders:?}"
    );
    // With `honor_labels`, the label `job` is the job of Quorate.
    let failed = until("the alert of the job that fails", PATIENCE, || {
        prometheus.query("ALERTS{alertname=\"JobFailed\",alertstate=\"firing\"}")
    });
    assert_eq!(failed[0]["metric"]["job"], "bad", "{failed:?}");
    assert_eq!(failed.len(), 1, "{failed:?}");
    let up = prometheus.query("sum(up)").expect("targets");
    assert_eq!(up[0]["value"][1], "4");
}
