//! A server's process: its start, its group, its stderr and its end.
//!
//! The child leads a process group of its own (a job object on Windows), sees only an allow-list
//! of the host's environment, and has its stderr drained into a bounded ring from the first byte.
//! One warden task owns the child; on every way out (exit, close, drop, a runtime that shuts
//! down) the whole group is killed, so that no grandchild survives. Pipes are handed out once.

use std::{collections::VecDeque, io, process::Stdio, sync::Arc, time::Duration};

use parking_lot::Mutex;
use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::{
    io::AsyncReadExt,
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

#[cfg(unix)]
use super::watchdog::Watched;
use crate::mcp::config::ServerConfig;

/// The job object does it here.
#[cfg(not(unix))]
enum Watched {}

/// What a server may see of the host's environment without its entry saying so.
#[cfg(not(windows))]
const INHERITED: [&str; 8] = ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "USER"];
#[cfg(windows)]
const INHERITED: [&str; 13] = [
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "PROCESSOR_ARCHITECTURE",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
];

/// What a server cannot do without where it matters: ways out of the network, who is trusted there, where
/// its files belong, language and time zone. In these and, for proxies, in lower case.
const NEEDED: [&str; 13] = [
    "ALL_PROXY",
    "CURL_CA_BUNDLE",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NODE_EXTRA_CA_CERTS",
    "NO_PROXY",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TZ",
    "UV_NATIVE_TLS",
    "PIP_CERT",
];

/// Whether a server sees this variable of the host's.
fn is_inherited(name: &str) -> bool {
    // They have no case there.
    #[cfg(windows)]
    let name = &*name.to_ascii_uppercase();
    INHERITED.contains(&name)
        || NEEDED.contains(&name)
        || name.starts_with("XDG_")
        || name.starts_with("LC_")
        || (name.ends_with("_proxy") && NEEDED.contains(&name.to_ascii_uppercase().as_str()))
}

/// How much of stderr is remembered.
const STDERR_RING: usize = 64 << 10;
/// How much of it errors show.
const STDERR_SHOWN: usize = 2 << 10;
/// How long stderr may take to drain once the group is dead; only a process that left the group
/// can hold it open longer.
const STDERR_DRAIN: Duration = Duration::from_millis(100);
/// How long a killed group is given to be gone.
#[cfg(unix)]
const GROUP_END: Duration = Duration::from_millis(500);

/// How a process ended.
#[derive(Debug, Clone)]
pub(in crate::mcp) struct Exit {
    /// `exit status: 3`, `signal: 9 (SIGKILL)`.
    pub(in crate::mcp) status: String,
}

#[derive(Debug)]
pub(in crate::mcp) struct Process {
    pid: u32,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    exit: watch::Receiver<Option<Exit>>,
    terminate: CancellationToken,
    kill: CancellationToken,
}

/// The two pipes that carry messages.
pub(super) struct Pipes {
    pub(super) stdin: Pipe,
    pub(super) stdout: ChildStdout,
}

impl Process {
    /// Start the program of a stdio entry.
    pub(super) fn start(config: &ServerConfig) -> io::Result<(Self, Pipes)> {
        let mut command = CommandWrap::from(command(config));
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        // The job dies with its last handle, so also with this process.
        #[cfg(windows)]
        command.wrap(process_wrap::tokio::KillOnDrop).wrap(process_wrap::tokio::JobObject);
        if let Some(cwd) = config.cwd.as_ref().filter(|cwd| !cwd.is_dir()) {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no folder {}", cwd.display()),
            ));
        }
        let mut group = Group { child: command.spawn()?, reaped: false };
        let missing = || io::Error::other("the child has no pipes");
        let stdin = Pipe::new(group.child.stdin().take().ok_or_else(missing)?)?;
        let stdout = group.child.stdout().take().ok_or_else(missing)?;
        let errors = group.child.stderr().take().ok_or_else(missing)?;
        let pid = group.child.id().ok_or_else(|| io::Error::other("the child has no id"))?;
        #[cfg(unix)]
        let watched = Some(super::watchdog::watch(pid));
        #[cfg(not(unix))]
        let watched = None;

        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let drain = AbortOnDropHandle::new(crate::spawn(drain(errors, Arc::clone(&stderr))));
        let (tell, exit) = watch::channel(None);
        let (terminate, kill) = (CancellationToken::new(), CancellationToken::new());
        crate::spawn(warden(pid, group, watched, drain, tell, terminate.clone(), kill.clone()));
        Ok((Self { pid, stderr, exit, terminate, kill }, Pipes { stdin, stdout }))
    }

    pub(in crate::mcp) const fn pid(&self) -> u32 {
        self.pid
    }

    /// Ask the group to end (SIGTERM; nothing on Windows).
    pub(in crate::mcp) fn terminate(&self) {
        self.terminate.cancel();
    }

    /// Kill the whole group.
    pub(in crate::mcp) fn kill(&self) {
        self.kill.cancel();
    }

    /// Wait until the process has ended and its group is gone.
    pub(in crate::mcp) async fn exited(&self) -> Exit {
        let mut exit = self.exit.clone();
        match exit.wait_for(Option::is_some).await {
            Ok(exit) => exit.clone(),
            // The warden is gone with its runtime, and has killed the group on its way.
            Err(_) => None,
        }
        .unwrap_or_else(|| Exit { status: "killed".to_owned() })
    }

    /// The last lines of stderr, for errors; empty if there is nothing.
    pub(in crate::mcp) fn stderr_tail(&self) -> String {
        self.stderr(STDERR_SHOWN)
    }

    /// The end of stderr, as far as it is remembered.
    pub(in crate::mcp) fn stderr(&self, most: usize) -> String {
        let bytes: Vec<u8> = self.stderr.lock().iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim();
        let mut start = text.len().saturating_sub(most);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        text[start..].chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

#[cfg(not(windows))]
fn program(config: &ServerConfig) -> (&str, &[String]) {
    (&config.command, &config.args)
}

#[cfg(windows)]
fn program(config: &ServerConfig) -> (String, Vec<String>) {
    use super::launcher;

    let variable = |name: &str| config.env.get(name).map(Into::into).or_else(|| std::env::var_os(name));
    let shell = variable("COMSPEC")
        .map_or_else(|| "cmd.exe".to_owned(), |shell| shell.to_string_lossy().into_owned());
    let path = variable("PATH").unwrap_or_default();
    launcher::windows_command(&config.command, &config.args, &shell, |name| launcher::find(name, &path))
}

fn command(config: &ServerConfig) -> Command {
    let (program, args) = program(config);
    let mut command = Command::new(program);
    command.args(args).env_clear();
    for (name, value) in std::env::vars_os() {
        // Exported shell functions are code, not settings.
        if name.to_str().is_some_and(is_inherited) && !value.to_string_lossy().starts_with("()") {
            command.env(name, value);
        }
    }
    command.envs(&config.env);
    if let Some(cwd) = &config.cwd {
        command.current_dir(cwd);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The child and what it started; killed as a whole when dropped.
struct Group {
    child: Box<dyn ChildWrapper>,
    reaped: bool,
}

impl Group {
    fn kill(&mut self) {
        // An error means that nothing of the group is left.
        let _ = self.child.start_kill();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Once the leader is reaped and the group swept, its number may belong to others.
        if !self.reaped {
            self.kill();
        }
    }
}

async fn warden(
    pid: u32,
    mut group: Group,
    watched: Option<Watched>,
    drain: AbortOnDropHandle<()>,
    tell: watch::Sender<Option<Exit>>,
    terminate: CancellationToken,
    kill: CancellationToken,
) {
    let mut asked = false;
    let mut killed = false;
    let status = loop {
        tokio::select! {
            biased;
            () = kill.cancelled(), if !killed => {
                killed = true;
                group.kill();
            }
            // The leader alone: the wrapper's own `wait` waits for what it left behind as well.
            status = group.child.inner_mut().wait() => break status,
            () = terminate.cancelled(), if !asked => {
                asked = true;
                #[cfg(unix)]
                let _ = group.child.signal(libc::SIGTERM);
            }
        }
    };
    // What the leader started must not outlive it.
    group.kill();
    gone(pid, &mut group).await;
    group.reaped = true;
    drop(watched);
    let _ = tokio::time::timeout(STDERR_DRAIN, drain).await;
    let status = match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("unknown exit status ({error})"),
    };
    let _ = tell.send(Some(Exit { status }));
}

/// Wait until nothing of a killed group is left: a signal takes a moment to be delivered. Where the
/// dead are not reaped (in containers without an init), they count as left, so that the wait is short.
#[cfg(unix)]
async fn gone(leader: u32, group: &mut Group) {
    use nix::{sys::signal::killpg, unistd::Pid};

    let Ok(leader) = i32::try_from(leader) else { return };
    let limit = tokio::time::Instant::now() + GROUP_END;
    let mut pause = Duration::from_millis(1);
    loop {
        // Where this process adopts orphans (as the first process of a container does).
        let _ = group.child.try_wait();
        if killpg(Pid::from_raw(leader), None).is_err() || tokio::time::Instant::now() >= limit {
            return;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

#[cfg(not(unix))]
async fn gone(_leader: u32, _group: &mut Group) {}

async fn drain(mut stderr: ChildStderr, ring: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = vec![0; 8 << 10];
    while let Ok(length @ 1..) = stderr.read(&mut chunk).await {
        let mut ring = ring.lock();
        ring.extend(&chunk[..length]);
        let over = ring.len().saturating_sub(STDERR_RING);
        ring.drain(..over);
    }
}

/// Stdin of a server, written without waiting.
#[cfg(unix)]
pub(super) struct Pipe(tokio::net::unix::pipe::Sender);

#[cfg(unix)]
impl Pipe {
    fn new(stdin: ChildStdin) -> io::Result<Self> {
        tokio::net::unix::pipe::Sender::from_owned_fd(stdin.into_owned_fd()?).map(Self)
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.0.writable().await
    }
}

/// Stdin of a server. Anonymous pipes know no non-blocking writes here, so that a task of the
/// pipe's own writes, one piece at a time.
#[cfg(not(unix))]
pub(super) struct Pipe(tokio::sync::mpsc::Sender<Vec<u8>>);

#[cfg(not(unix))]
impl Pipe {
    #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
    fn new(mut stdin: ChildStdin) -> io::Result<Self> {
        use tokio::io::AsyncWriteExt;

        let (send, mut pieces) = tokio::sync::mpsc::channel::<Vec<u8>>(1);
        crate::spawn(async move {
            while let Some(piece) = pieces.recv().await {
                if stdin.write_all(&piece).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        });
        Ok(Self(send))
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        use tokio::sync::mpsc::error::TrySendError;

        match self.0.try_send(bytes.to_vec()) {
            Ok(()) => Ok(bytes.len()),
            Err(TrySendError::Full(_)) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(super) async fn writable(&self) -> io::Result<()> {
        self.0.reserve().await.map(drop).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}
