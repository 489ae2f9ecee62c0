//! The stdio transport: a child process whose stdin and stdout carry one JSON message a line.
//!
//! rmcp sees a `Transport<RoleClient>`; calls go beside it through the [`Lane`]. Both are written
//! by one [`Outbox`] and read by one task, which hands every line to the [`Inbox`] and, whichever
//! way the server ends, fails who waits.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rmcp::{
    RoleClient,
    model::{ClientNotification, ClientRequest, JsonRpcMessage, RequestId},
    service::TxJsonRpcMessage,
    transport::Transport,
};
use tokio::{
    io::AsyncReadExt,
    process::ChildStdout,
    sync::mpsc::{UnboundedReceiver, unbounded_channel},
};

use super::{
    decode::Incoming,
    frame::{Lines, MAX_LINE},
    inbox::{Inbox, Requests},
    outbox::Outbox,
    process::{Pipes, Process},
};
use crate::mcp::{config::ServerConfig, lane::Lane};

/// Told once why the connection ended.
type Lost = Box<dyn FnOnce(&str) + Send>;

/// How long stdout is still read after the process has ended or closed its input. Once the group
/// is gone, only a process that left it can hold stdout open.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// How long after the end of stdout the exit status is waited for.
const EXIT_STATUS: Duration = Duration::from_millis(250);

/// A started server: rmcp's half, and what the connection keeps.
pub(in crate::mcp) struct Started {
    pub(in crate::mcp) transport: StdioTransport,
    pub(in crate::mcp) process: Arc<Process>,
    pub(in crate::mcp) outbox: Arc<Outbox>,
    pub(in crate::mcp) lane: Arc<Lane>,
}

/// Start the server of a stdio entry, with its reader, writer and sweeper.
///
/// `lost` is called once, when the server can no longer be spoken to, before the calls that wait fail.
pub(in crate::mcp) fn start(
    server: &Arc<str>,
    config: &ServerConfig,
    lost: impl FnOnce(&str) + Send + 'static,
) -> io::Result<Started> {
    let (process, Pipes { stdin, stdout }) = Process::start(config)?;
    let process = Arc::new(process);
    let outbox = Outbox::new(stdin);
    let lane = Lane::new(Arc::clone(server), Arc::clone(&outbox));
    let (to_rmcp, incoming) = unbounded_channel();
    let requests = Arc::new(Requests::default());

    crate::spawn(Arc::clone(&outbox).run());
    crate::spawn(Arc::clone(&lane).sweep());
    let inbox = Inbox::new(server, &lane, &outbox, &requests, to_rmcp);
    let end = End { lane: Arc::clone(&lane), outbox: Arc::clone(&outbox), lost: Some(Box::new(lost)) };
    crate::spawn(read(inbox, stdout, Arc::clone(&process), end));

    let transport = StdioTransport { outbox: Arc::clone(&outbox), incoming, requests };
    Ok(Started { transport, process, outbox, lane })
}

/// Ends the lane on every way out of the reader, also when its runtime goes away under it.
struct End {
    lane: Arc<Lane>,
    outbox: Arc<Outbox>,
    lost: Option<Lost>,
}

impl End {
    fn now(&mut self, why: &str) {
        if let Some(lost) = self.lost.take() {
            self.outbox.abandon();
            // The connection's state changes before its calls fail, so that whoever is told sees it.
            self.lane.refuse(why);
            lost(why);
            self.lane.end(why);
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.now("the connection was torn down");
    }
}

/// The reader task: until the output ends, or the process has and nothing more comes.
async fn read(mut inbox: Inbox, mut stdout: ChildStdout, process: Arc<Process>, mut end: End) {
    let mut lines = Lines::new(MAX_LINE);
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
            inbox.line(&lines, line);
        }
    }
    if let Some(line) = lines.rest() {
        inbox.line(&lines, line);
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

/// A reason with the last lines of stderr, where there are any.
pub(in crate::mcp) fn with_stderr(mut why: String, process: &Process) -> String {
    let tail = process.stderr_tail();
    if !tail.is_empty() {
        why.push_str("; stderr: ");
        why.push_str(&tail);
    }
    why
}

/// rmcp's half of the transport.
#[derive(Debug)]
pub(in crate::mcp) struct StdioTransport {
    outbox: Arc<Outbox>,
    incoming: UnboundedReceiver<Incoming>,
    requests: Arc<Requests>,
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        match &item {
            JsonRpcMessage::Request(request) => {
                if let RequestId::Number(id) = request.id {
                    if matches!(request.request, ClientRequest::InitializeRequest(_)) {
                        *self.requests.initialize.lock() = Some(id);
                    }
                    self.requests.waiting.lock().insert(id);
                }
            }
            JsonRpcMessage::Notification(notification) => match &notification.notification {
                ClientNotification::InitializedNotification(_) => {
                    self.requests.initialized.store(true, Ordering::Release);
                }
                ClientNotification::CancelledNotification(cancelled) => {
                    if let Some(RequestId::Number(id)) = cancelled.params.request_id {
                        self.requests.waiting.lock().remove(&id);
                    }
                }
                _ => {}
            },
            _ => {}
        }
        let sent = serde_json::to_vec(&item).map_err(io::Error::other).and_then(|mut line| {
            line.push(b'\n');
            self.outbox
                .push(&line)
                .map(drop)
                .map_err(|refused| io::Error::new(io::ErrorKind::BrokenPipe, format!("{refused:?}")))
        });
        std::future::ready(sent)
    }

    async fn receive(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outbox.close();
        Ok(())
    }
}
