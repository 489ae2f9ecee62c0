//! The misbehaving server over each transport, and the macro that makes one test for each.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test file uses a part")]

use std::{
    io::{BufRead, BufReader},
    ops::Deref,
    process::{Child, Command, Stdio},
    sync::Arc,
};

use nanobot_tools::{
    Error,
    mcp::{Connection, ServerConfig, connect},
};
use serde_json::{Value, json};

use crate::support;

/// A transport, and over Streamable HTTP how the server answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    Stdio,
    Json,
    Sse,
    Legacy,
}

impl Over {
    pub fn stdio() -> Self {
        Self::Stdio
    }

    pub fn json() -> Self {
        Self::Json
    }

    pub fn sse() -> Self {
        Self::Sse
    }

    pub fn legacy() -> Self {
        Self::Legacy
    }

    /// A running server (over HTTP, where nobody else starts it) and the entry that leads to it.
    pub fn entry(self, mode: &str, extra: Value) -> (ServerConfig, Option<Process>) {
        if self == Self::Stdio {
            return (support::entry(mode, extra), None);
        }
        let process = Process::start(mode, self);
        let kind = if self == Self::Legacy { "sse" } else { "streamableHttp" };
        let mut entry = json!({"type": kind, "url": process.url, "allowPrivate": true});
        if let (Value::Object(entry), Value::Object(extra)) = (&mut entry, extra) {
            entry.extend(extra);
        }
        (ServerConfig::from_json("odd", &entry).expect("a valid entry"), Some(process))
    }

    pub async fn attempt(self, mode: &str, extra: Value) -> Result<Peer, Error> {
        let (entry, process) = self.entry(mode, extra);
        let attempt = tokio::time::timeout(support::GENEROUS, connect("odd", entry));
        let connection = attempt.await.expect("connect hangs")?;
        Ok(Peer { connection, process })
    }

    pub async fn connected_with(self, mode: &str, extra: Value) -> Peer {
        self.attempt(mode, extra).await.unwrap_or_else(|error| panic!("{mode} over {self:?}: {error}"))
    }

    pub async fn connected(self, mode: &str) -> Peer {
        self.connected_with(mode, json!({})).await
    }

    /// The error of a connection that must not come about.
    pub async fn refused(self, mode: &str, extra: Value) -> String {
        match self.attempt(mode, extra).await {
            Ok(_) => panic!("{mode} over {self:?} is connected"),
            Err(error) => error.to_string(),
        }
    }
}

/// A connection with the server at its other end.
#[derive(Debug)]
pub struct Peer {
    pub connection: Arc<Connection>,
    pub process: Option<Process>,
}

impl Deref for Peer {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Peer {
    /// Kill the server, whoever started it.
    pub fn kill(&mut self) {
        if let Some(process) = &mut self.process {
            return process.kill();
        }
        let pid = self.connection.pid().expect("a local server").to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().expect("kill runs").success());
    }
}

/// A server that listens; it ends when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pub url: String,
}

impl Process {
    pub fn start(mode: &str, over: Over) -> Self {
        Self::start_at(mode, over, 0)
    }

    /// As [`start`](Self::start), at this port; 0 is any.
    pub fn start_at(mode: &str, over: Over, port: u16) -> Self {
        let style = format!("{over:?}").to_lowercase();
        let mut child = Command::new(support::server("misbehaving_server"))
            .args([mode, &style])
            .env("PORT", port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let url = lines.find_map(|line| line.ok().filter(|line| line.starts_with("http://")));
        Self { child, url: url.expect("the server says where it listens") }
    }

    /// The port that it listens at.
    pub fn port(&self) -> u16 {
        let (_, rest) = self.url.rsplit_once(':').expect("an address with a port");
        rest.split('/').next().and_then(|port| port.parse().ok()).expect("a port")
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A promise and the transports that it is kept over; each gives a test of its own.
#[macro_export]
macro_rules! promise {
    ($(#[$note:meta])* $name:ident [$($over:ident)+] |$variable:ident| $body:block) => {
        $(#[$note])*
        mod $name {
            #[allow(unused_imports, reason = "not every promise needs all of it")]
            use super::*;

            $(#[tokio::test]
            async fn $over() {
                check(Over::$over()).await;
            })+

            async fn check($variable: Over) $body
        }
    };
}
