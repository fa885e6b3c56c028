use super::{PATIENCE, until};
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

/// The longest time for one command of a browser.
const COMMAND: Duration = Duration::from_secs(30);
/// The text before the port in the output of chromedriver.
const STARTED: &str = "started successfully on port ";
/// The key under which WebDriver stores the id of an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// The code points of keys in WebDriver.
pub const TAB: &str = "\u{e004}";
/// The Enter key.
pub const ENTER: &str = "\u{e007}";

/// A headless Chromium, driven by chromedriver. Dropping it ends both.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
}

impl Browser {
    /// Starts a browser; `None` if this machine has no `chromedriver`.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start() -> Option<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null());
        let mut driver = command.spawn().ok()?;
        let stdout = driver.stdout.take().expect("a pipe");
        let (said, port) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let port =
                    line.split_once(STARTED).and_then(|(_, rest)| rest.trim_end_matches('.').parse().ok());
                if let Some(port) = port {
                    // The receiver is gone if the wait has failed.
                    let _ = said.send(port);
                }
            }
        });
        let port: u16 = port.recv_timeout(PATIENCE).expect("chromedriver prints its port");
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let mut browser = Self { driver, address, session: String::new() };
        // As root, Chromium has no sandbox.
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
        ];
        let options = json!({ "args": args });
        let wanted = json!({ "capabilities": { "alwaysMatch": { "goog:chromeOptions": options } } });
        let session = browser.send("POST", "/session", &wanted);
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// Opens an address, and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.ask("url", &json!({ "url": url }));
    }

    /// Runs a script, and returns its result. WebDriver is not subject to the policy of the page.
    pub fn run(&self, script: &str) -> Value {
        self.ask("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Runs a script that calls its last argument with the result.
    pub fn run_async(&self, script: &str) -> Value {
        self.ask("execute/async", &json!({ "script": script, "args": [] }))
    }

    /// Returns the text of the first element that a CSS selector matches; empty if there is none.
    pub fn text(&self, selector: &str) -> String {
        let script = format!("return document.querySelector({})?.innerText ?? ''", json!(selector));
        self.run(&script).as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the text of an element contains `text`.
    #[track_caller]
    pub fn until_text(&self, selector: &str, text: &str, within: Duration) {
        until(&format!("{text:?} in {selector}"), within, || {
            self.text(selector).contains(text).then_some(())
        });
    }

    /// Clicks on the first element that a CSS selector matches. An update of the page may replace the element after
    /// it was found. Then it is looked for again.
    #[track_caller]
    pub fn click(&self, selector: &str) {
        until(&format!("a click on {selector}"), PATIENCE, || {
            let found = self.ask("element", &json!({ "using": "css selector", "value": selector }));
            let id = found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}: {found}"));
            let path = format!("/session/{}/element/{id}/click", self.session);
            match self.try_send("POST", &path, &json!({})) {
                Ok(_) => Some(()),
                Err(error) if error.starts_with("stale element reference") => None,
                Err(error) => panic!("{selector}: {error}"),
            }
        });
    }

    /// Presses these keys, one after the other, in the element that has the focus.
    pub fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        self.ask("actions", &json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }));
    }

    /// Presses Tab until the element with the focus matches a CSS selector.
    #[track_caller]
    pub fn tab_to(&self, selector: &str) {
        let is_there = format!("return document.activeElement.matches({})", json!(selector));
        for _ in 0..60 {
            if self.run(&is_there) == true {
                return;
            }
            self.press(TAB);
        }
        panic!("Tab does not reach {selector}");
    }

    /// Sets the size of the page, and whether it is dark.
    pub fn look(&self, width: u32, height: u32, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.cdp("Emulation.setDeviceMetricsOverride", &size);
        let scheme = if dark { "dark" } else { "light" };
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.cdp("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// Lets no request to a URL that matches `pattern` leave the browser. `*` stands for any text.
    pub fn block(&self, pattern: &str) {
        self.cdp("Network.enable", &json!({}));
        self.cdp("Network.setBlockedURLs", &json!({ "urls": [pattern] }));
    }

    /// Returns a picture of the page, as PNG in base64.
    pub fn screenshot(&self) -> String {
        let picture = self.cdp("Page.captureScreenshot", &json!({ "format": "png" }));
        picture["data"].as_str().expect("a picture").to_owned()
    }

    fn cdp(&self, command: &str, params: &Value) -> Value {
        self.ask("goog/cdp/execute", &json!({ "cmd": command, "params": params }))
    }

    fn ask(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        self.try_send(method, path, body).unwrap_or_else(|error| panic!("{method} {path} {body}: {error}"))
    }

    fn try_send(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let answer = self.exchange(request.as_bytes()).map_err(|error| error.to_string())?;
        let body = answer.split_once("\r\n\r\n").ok_or("no body")?.1;
        let answer: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {body}"))?;
        match answer["value"]["error"].as_str() {
            Some(error) => Err(format!("{error}: {}", answer["value"]["message"])),
            None => Ok(answer["value"].clone()),
        }
    }

    fn exchange(&self, request: &[u8]) -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(COMMAND))?;
        stream.write_all(request)?;
        // chromedriver keeps the connection open: the body is as long as its header says.
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let begin = head.len();
            if reader.read_line(&mut head)? == 0 {
                break;
            }
            let line = head[begin..].to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        Ok(head + &String::from_utf8_lossy(&body))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser ends with its session. An error changes nothing: chromedriver is killed.
        let _ = self.try_send("DELETE", &format!("/session/{}", self.session), &json!({}));
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
