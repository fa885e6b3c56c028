use quorate::redis::RedisNode;
use quorate::{Claims, Quorum, claim::ClaimOutcome};
use quorate_testkit::cannot_run;
use quorate_tests::support::{Browser, ENTER, Http, Nodes, PATIENCE, Program, Running, until};
use serde_json::json;
use std::time::Duration;

pub(crate) const OPERATE: &str = "the-token-to-operate";
pub(crate) const READ: &str = "the-token-for-reading";
/// The name of a job that would run as a script if a page did not escape it.
pub(crate) const HOSTILE: &str = "<script>alert(1)<script>";
/// The time within which a page shows a change.
pub(crate) const SOON: Duration = Duration::from_secs(2);
/// A job that waits for the file `go` and then fails, one with a hostile name, and one that succeeds each second.
const JOBS: &str = "[[job]]\nname = \"slow\"\nschedule = \"0 0 29 2 *\"\nzone = \"Europe/Kyiv\"\nkeep_output = \"1KiB\"\n\
     command = [\"sh\", \"-c\", \"echo reading; while [ ! -e DIR/go ]; do sleep 0.05; done; echo '<b>bold</b>'; exit 3\"]\n\
     [[job]]\nname = \"<script>alert(1)<script>\"\nschedule = \"0 0 29 2 *\"\ncommand = [\"true\"]\n\
     [[job]]\nname = \"beat\"\nevery = \"1s\"\ncommand = [\"true\"]\n";

/// A server of pages on nodes that vote, and a browser.
pub(crate) struct Bench {
    pub(crate) program: Program,
    pub(crate) nodes: Nodes,
    /// The path of the configuration file.
    pub(crate) config: String,
    pub(crate) daemon: Running,
    pub(crate) http: Http,
    pub(crate) browser: Browser,
}

impl Bench {
    /// Starts a daemon on three nodes; `None` if this machine cannot run the test `name`.
    pub(crate) fn start(name: &str) -> Option<Self> {
        Self::of(name, 3, JOBS, "run")
    }

    /// Starts the command `quorate run` or `quorate web` on so many nodes, with these jobs. `DIR` in the jobs is the
    /// directory of the program.
    pub(crate) fn of(name: &str, nodes: usize, jobs: &str, command: &str) -> Option<Self> {
        let Some(browser) = Browser::start() else {
            let reason = "chromedriver is missing; install chromium and chromium-driver";
            cannot_run(&format!("web::{name}"), reason);
            return None;
        };
        let program = Program::new(env!("CARGO_BIN_EXE_quorate-under-test"));
        let nodes = Nodes::admitted(nodes, &program, &[]);
        program.write("operate", OPERATE);
        let list: Vec<String> = nodes.urls().iter().map(|url| format!("{url:?}")).collect();
        let jobs = jobs.replace("DIR", program.dir().to_str().expect("a path"));
        let text = format!(
            "nodes = [{}]\ngroup = \"billing\"\nlease = {{ ttl = \"3s\" }}\n[http]\nlisten = \"127.0.0.1:0\"\n\
             operate_token_file = \"operate\"\n{jobs}",
            list.join(", ")
        );
        let config = program.write("quorate.toml", &text);
        let daemon = program.start([command, "--config", &config]);
        let http = Http::of(&daemon);
        browser.look(1_280, 900, false);
        Some(Self { program, nodes, config, daemon, http, browser })
    }

    /// Waits until the leader has registered a job.
    pub(crate) fn until_registered(&self, job: &str) {
        let path = format!("/api/v1/jobs/{job}");
        until(&format!("the job {job}"), PATIENCE, || (self.http.status(&path) == Some(200)).then_some(()));
    }

    pub(crate) fn open(&self, path: &str) {
        self.browser.open(&format!("http://{}{path}", self.http.address()));
    }

    /// Opens a page, and waits until it is updated by itself.
    pub(crate) fn open_live(&self, path: &str) {
        self.open(path);
        self.browser.until_text("#live", "live,", PATIENCE);
        self.browser.run("window.sameDocument = true");
    }

    /// Fails if the page was loaded again since [`Bench::open_live`].
    #[track_caller]
    pub(crate) fn is_same_document(&self) {
        assert_eq!(self.browser.run("return window.sameDocument"), true);
    }

    /// Returns the selector of the state of a job or node.
    pub(crate) fn row(key: &str) -> String {
        format!("[data-key=\"{key}\"] td.at")
    }

    /// Signs in with the keyboard alone.
    pub(crate) fn sign_in(&self) {
        self.open("/sign-in");
        self.browser.tab_to("input[name=token]");
        self.browser.press(OPERATE);
        self.browser.press(ENTER);
        self.browser.until_text("footer", "You may operate.", PATIENCE);
    }

    /// Clicks on an action of the page that is open, and waits until its form is open. Returns the selector of the form.
    #[track_caller]
    pub(crate) fn open_action(&self, action: &str) -> String {
        let form = format!("form[action$='/do/{action}']");
        let is_open = || {
            let script = format!("return document.querySelector({}).closest('details').open", json!(form));
            self.browser.run(&script) == true
        };
        self.browser.click(&format!("details:has({form}) > summary"));
        until(&format!("the question of {action}"), PATIENCE, || is_open().then_some(()));
        form
    }

    /// Fills in a field of a form, and returns the selector of the field.
    pub(crate) fn fill(&self, form: &str, name: &str, value: &str) -> String {
        let field = format!("{form} [name={name}]");
        self.browser.run(&format!("document.querySelector({}).value = {}", json!(field), json!(value)));
        field
    }

    /// Clicks on an action of the page that is open, checks that it asks, fills in its fields, and clicks on its button.
    /// Returns the notice that says what it did.
    #[track_caller]
    pub(crate) fn act(&self, action: &str, question: &str, fields: &[(&str, &str)]) -> String {
        // The notice of the action before.
        self.browser.run("document.querySelector('.notice')?.remove()");
        let form = self.open_action(action);
        let asked = self.browser.text(&form);
        assert!(asked.contains(question), "{action}: {asked}");
        assert_eq!(self.browser.text(".notice"), "", "nothing is done before the answer");
        for (name, value) in fields {
            self.fill(&form, name, value);
        }
        self.browser.click(&format!("{form} button"));
        until(&format!("the notice of {action}"), PATIENCE, || {
            Some(self.browser.text(".notice")).filter(|notice| !notice.is_empty())
        })
    }
}

/// Stores a message that is done, one that was given up, and one in progress, in the set `orders`.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn store_messages(list: &str) {
    let nodes = list.split(',').map(|url| RedisNode::parse(url).expect("a url"));
    // The browser that starts at the same time may take both processors for longer than a reply usually takes.
    let quorum = Quorum::builder().nodes(nodes).worker("ops1").node_timeout(Duration::from_secs(1));
    let quorum = quorum.build().expect("a quorum");
    quorum.ready(PATIENCE).await.expect("a majority");
    let claims = Claims::new(&quorum, "orders")
        .ttl(Duration::from_secs(3))
        .max_attempts(1)
        .dead_letter(|_| async { Ok::<_, String>("card network: 422 <unknown merchant>") });
    let claim = async |id: &str| match claims.claim(id).await.expect("an answer") {
        ClaimOutcome::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    };
    claim("80411").await.complete("sent").await.expect("a majority");
    claim("80412").await.abandon().await.expect("a majority");
    let given_up = claims.claim("80412").await.expect("an answer");
    assert!(matches!(given_up, ClaimOutcome::DeadLettered(_)), "{given_up:?}");
    quorum.close().await;
}
