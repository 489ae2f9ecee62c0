//! The stdio transport: a child process whose stdin and stdout carry one JSON message a line.
//!
//! Lines are written by one [`Outbox`], by the calling thread where the pipe takes them, and read by
//! one task, which delivers each and, whichever way the server ends, says so.

use std::{io, sync::Arc, time::Duration};

use tokio::{io::AsyncReadExt, process::ChildStdout};

use super::{
    Carrier, Kind, MAX_MESSAGE, Position, Receiver, Refused,
    frame::{Line, Lines},
    outbox::Outbox,
    process::{Pipes, Process},
};
use crate::mcp::{config::ServerConfig, wire};

/// How long stdout is still read after the process has ended or closed its input. Once the group
/// is gone, only a process that left it can hold stdout open.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long after the end of stdout the exit status is waited for.
const EXIT_STATUS: Duration = Duration::from_millis(250);

/// The stdin of a server.
#[derive(Debug)]
pub(in crate::mcp) struct Stdio {
    outbox: Arc<Outbox>,
}

/// A started server that nobody listens to yet.
#[derive(Debug)]
pub(in crate::mcp) struct Started {
    pub(in crate::mcp) carrier: Arc<Stdio>,
    process: Arc<Process>,
    stdout: ChildStdout,
}

/// Start the server of a stdio entry, with its writer.
pub(in crate::mcp) fn start(config: &ServerConfig) -> io::Result<Started> {
    let (process, Pipes { stdin, stdout }) = Process::start(config)?;
    let outbox = Outbox::new(stdin);
    crate::spawn(Arc::clone(&outbox).run());
    Ok(Started { carrier: Arc::new(Stdio { outbox }), process: Arc::new(process), stdout })
}

impl Started {
    /// Read what the server says, until its end.
    pub(in crate::mcp) fn listen(self, receiver: Arc<dyn Receiver>) -> Arc<Process> {
        let Self { carrier, process, stdout } = self;
        let end = End { outbox: Arc::clone(&carrier.outbox), receiver: Some(Arc::clone(&receiver)) };
        crate::spawn(read(receiver, stdout, Arc::clone(&process), end));
        process
    }
}

impl Carrier for Stdio {
    fn send(&self, line: &[u8], _kind: Kind<'_>) -> Result<Position, Refused> {
        self.outbox.push(line)
    }

    fn has_left(&self, position: Position) -> bool {
        self.outbox.has_left(position)
    }

    fn forget(&self, _id: i64) {}

    fn agreed(&self, _version: &str, _listen: bool) {}

    fn close(&self) {
        self.outbox.close();
    }
}

/// Tells the end on every way out of the reader, also when its runtime goes away under it.
struct End {
    outbox: Arc<Outbox>,
    receiver: Option<Arc<dyn Receiver>>,
}

impl End {
    fn now(&mut self, why: &str) {
        if let Some(receiver) = self.receiver.take() {
            self.outbox.abandon();
            receiver.end(why);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.now("the connection was torn down");
    }
}

/// The reader task: until the output ends, or the process has and nothing more comes.
async fn read(receiver: Arc<dyn Receiver>, mut stdout: ChildStdout, process: Arc<Process>, mut end: End) {
    let mut lines = Lines::new(MAX_MESSAGE);
    let outbox = Arc::clone(&end.outbox);
    let gone = async {
        let by_input = tokio::select! {
            _ = process.exited() => false,
            () = outbox.broken() => true,
        };
        tokio::time::sleep(LAST_WORDS).await;
        by_input
    };
    let mut closed_input = false;
    tokio::pin!(gone);
    loop {
        let read = tokio::select! {
            read = stdout.read_buf(lines.space()) => read,
            by_input = &mut gone => {
                closed_input = by_input;
                break;
            }
        };
        match read {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => {
                tracing::debug!(pid = process.pid(), %error, "reading stdout failed");
                break;
            }
        }
        while let Some(line) = lines.next() {
            deliver(&*receiver, &lines, line);
        }
    }
    if let Some(line) = lines.rest() {
        deliver(&*receiver, &lines, line);
    }
    let exit = tokio::time::timeout(EXIT_STATUS, process.exited()).await.ok();
    // A server that closed one of its ends and lives on is of no use to anyone.
    process.kill();
    let why = match exit {
        Some(exit) => format!("the server has exited ({})", exit.status),
        None if closed_input => "the server has closed its input".to_owned(),
        None => "the server has closed its output".to_owned(),
    };
    end.now(&with_stderr(why, &process));
}

fn deliver(receiver: &dyn Receiver, lines: &Lines, line: Line) {
    match line {
        Line::Whole(range) => receiver.deliver(&wire::text(lines.bytes(range)), None),
        Line::TooLong { id, length } => {
            let why = format!("it has {length} bytes, more than the {MAX_MESSAGE} that are accepted");
            receiver.undelivered(id, &why);
        }
    }
}

/// A reason with the last lines of stderr, where there are any.
pub(in crate::mcp) fn with_stderr(mut why: String, process: &Process) -> String {
    let tail = process.stderr_tail();
    if !tail.is_empty() {
        why.push_str("; stderr: ");
        why.push_str(&tail);
    }
    why
}
