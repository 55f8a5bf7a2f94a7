//! Headless Chromium, driven by the DevTools protocol: JSON that ends with a NUL, on descriptors 3 and 4.

use super::needs::{cannot_start, needs};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

pub(crate) struct Browser {
    child: Child,
    /// None once the browser is to end.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    session: Value,
    sent: u64,
    events: Vec<Value>,
}

impl Browser {
    /// Starts a browser with one empty page. Its profile is in this directory. It ends after two minutes at the latest.
    #[track_caller]
    pub(crate) fn start(profile: &Path) -> Browser {
        needs("chromium");
        let options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run --hide-scrollbars";
        let line = format!(
            "exec timeout 120 chromium {options} --remote-debugging-pipe --user-data-dir=\"$0\" about:blank 3<&0 4>&1 </dev/null >/dev/null 2>&1"
        );
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &line]).arg(profile).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| cannot_start(&command, &error));
        let (to, from) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser { child, to, from, session: Value::Null, sent: 0, events: Vec::new() };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].clone();
        for domain in ["Page", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method, and returns its result.
    #[track_caller]
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.sent += 1;
        let mut message = json!({"id": self.sent, "method": method, "params": params});
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.to.as_mut().unwrap().write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.receive();
            if answer["id"] == self.sent {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Loads the page of this file. Returns the addresses of all requests until the page is complete.
    #[track_caller]
    pub(crate) fn load(&mut self, file: &Path) -> Vec<String> {
        self.events.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}", file.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.receive();
            self.events.push(event);
        }
        let sent = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        sent.map(|event| event["params"]["request"]["url"].as_str().unwrap().to_owned()).collect()
    }

    /// The value of this expression in the page.
    #[track_caller]
    pub(crate) fn evaluate(&mut self, expression: &str) -> Value {
        let told = self.call("Runtime.evaluate", json!({"expression": expression, "returnByValue": true}));
        assert!(told["exceptionDetails"].is_null(), "{told}");
        told["result"]["value"].clone()
    }

    #[track_caller]
    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.to = None; // so the browser ends
        let _ = self.child.wait();
    }
}
