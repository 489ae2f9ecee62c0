//! A receiver that writes down what a transport reports, for tests.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::Notify;

use super::{Carrier, Failure, Kind, Receiver};

/// What was reported.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Report {
    Message(Value, Option<i64>),
    Failed(i64, Failure),
    End(String),
}

#[derive(Debug, Default)]
pub(super) struct Recorder {
    reports: Mutex<Vec<Report>>,
    news: Notify,
}

impl Recorder {
    fn report(&self, report: Report) {
        self.reports.lock().push(report);
        self.news.notify_waiters();
    }

    pub(super) fn reports(&self) -> Vec<Report> {
        self.reports.lock().clone()
    }

    /// Wait for the first report that `pick` takes. The deadline is there against hanging.
    pub(super) async fn first<T>(&self, pick: impl Fn(&Report) -> Option<T>) -> T {
        let wait = async {
            loop {
                let news = self.news.notified();
                tokio::pin!(news);
                news.as_mut().enable();
                if let Some(found) = self.reports.lock().iter().find_map(&pick) {
                    return found;
                }
                news.await;
            }
        };
        let found = tokio::time::timeout(Duration::from_secs(20), wait).await;
        found.unwrap_or_else(|_| panic!("nothing of the kind among {:?}", self.reports.lock()))
    }

    /// The first thing that settles a request: its result or error, or its failure.
    pub(super) async fn outcome(&self, id: i64) -> Result<Value, Failure> {
        self.first(|report| match report {
            Report::Message(message, _) if message["id"] == id && message.get("method").is_none() => {
                Some(Ok(message.get("result").or(message.get("error")).cloned().unwrap_or_default()))
            }
            Report::Failed(failed, failure) if *failed == id => Some(Err(failure.clone())),
            _ => None,
        })
        .await
    }

    pub(super) async fn end_reason(&self) -> String {
        self.first(|report| match report {
            Report::End(why) => Some(why.clone()),
            _ => None,
        })
        .await
    }
}

impl Receiver for Recorder {
    fn deliver(&self, text: &str, answering: Option<i64>) {
        let message = serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
        self.report(Report::Message(message, answering));
    }

    fn fail(&self, id: i64, failure: Failure) {
        self.report(Report::Failed(id, failure));
    }

    fn end(&self, why: &str) {
        self.report(Report::End(why.to_owned()));
    }
}

/// Send a request without parameters.
pub(super) fn request(carrier: &Arc<dyn Carrier>, id: i64, method: &str) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\"}}\n");
    carrier.send(line.as_bytes(), Kind::Request { id, method, headers: Vec::new() }).unwrap();
}

/// Send a notification without parameters.
pub(super) fn notify(carrier: &Arc<dyn Carrier>, method: &str) {
    let line = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"{method}\"}}\n");
    carrier.send(line.as_bytes(), Kind::Notification { method, headers: Vec::new() }).unwrap();
}
