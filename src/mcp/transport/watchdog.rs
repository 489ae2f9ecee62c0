//! The watchdog: ends the servers of a process that died without having been able to.
//!
//! One shell for all servers reads the groups that there are from a pipe whose other end only this
//! process holds. When that end is gone, because this process was killed, crashed or replaced by another
//! program, it ends what is left: SIGTERM, a second, SIGKILL. It lives in a group of its own, out of the
//! reach of Ctrl-C, and as long as there are servers. One that was killed is replaced. A death signal
//! (`PR_SET_PDEATHSIG`) would follow the thread that started a server, reach none of its children, and not
//! survive `execv`. On Windows the job object does all of this.

use std::{
    collections::BTreeSet,
    io::{self, PipeWriter, Write},
    os::fd::AsFd,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;
use tokio::{process::Command, sync::oneshot};

const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=
while read -r sign group; do
    rest=
    for known in $groups; do [ "$known" = "$group" ] || rest="$rest $known"; done
    groups=$rest
    [ "$sign" = + ] && groups="$groups $group"
done
[ -n "$groups" ] || exit 0
for group in $groups; do kill -s TERM -- "-$group"; done
sleep 1
for group in $groups; do kill -s KILL -- "-$group"; done
"#;

/// Between the starts of two: something may be wrong with shells here.
const SOON: Duration = Duration::from_secs(1);

static WATCHDOG: Mutex<Watchdog> = Mutex::new(Watchdog { groups: BTreeSet::new(), shell: None });

struct Watchdog {
    groups: BTreeSet<u32>,
    shell: Option<Shell>,
}

/// A shell that listens.
struct Shell {
    pipe: PipeWriter,
    id: u32,
    /// Has it killed, by whoever waits for its end. The pipe is closed after that: at its end a shell that was
    /// only stopped would end servers that live.
    replace: oneshot::Sender<PipeWriter>,
}

/// A group that is ended if this process dies; until this is dropped.
#[derive(Debug)]
pub(super) struct Watched(u32);

/// Have the group of this leader ended if this process dies. On a thread of the runtime.
pub(super) fn watch(leader: u32) -> Watched {
    let mut watchdog = WATCHDOG.lock();
    watchdog.groups.insert(leader);
    if !watchdog.say('+', leader) {
        watchdog.start();
    }
    Watched(leader)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watchdog = WATCHDOG.lock();
        if !watchdog.groups.remove(&self.0) {
            return; // of the process that this one was forked from
        }
        // One that does not hear this is replaced when there is something new to tell.
        watchdog.say('-', self.0);
        if watchdog.groups.is_empty() {
            // It ends with its input.
            watchdog.shell = None;
        }
    }
}

/// In a process that was forked: let go of the parent's watchdog, which would wait for this process too.
pub(crate) fn forget() {
    // A thread that does not exist here may have held the lock; then nothing can be done.
    if let Some(mut watchdog) = WATCHDOG.try_lock() {
        watchdog.shell = None;
        watchdog.groups.clear();
    }
}

impl Watchdog {
    /// Tell the shell; whether it listens.
    fn say(&mut self, sign: char, group: u32) -> bool {
        let line = format!("{sign} {group}\n");
        self.shell.as_mut().is_some_and(|shell| shell.pipe.write_all(line.as_bytes()).is_ok())
    }

    /// Replace the shell by one that knows all groups.
    fn start(&mut self) {
        if let Some(Shell { pipe, replace, .. }) = self.shell.take() {
            // If nobody waits for it any more, it has ended.
            let _ = replace.send(pipe);
        }
        match launch(&self.groups) {
            Ok(shell) => self.shell = Some(shell),
            Err(error) => {
                tracing::warn!(%error, "no watchdog: servers may survive if this process is killed");
            }
        }
    }
}

fn launch(groups: &BTreeSet<u32>) -> io::Result<Shell> {
    // Closed when this process runs another program, and not inherited by what it starts.
    let (input, mut pipe) = io::pipe()?;
    // Nobody waits for it: a full pipe means that it is stopped.
    fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut shell = Command::new("/bin/sh");
    shell
        .args(["-c", SCRIPT, "nanobot-tools-watchdog"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::from(input))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .current_dir("/")
        .process_group(0);
    let mut shell = shell.spawn()?;
    let id = shell.id().unwrap_or_default();
    for group in groups {
        pipe.write_all(format!("+ {group}\n").as_bytes())?;
    }
    let (replace, replaced) = oneshot::channel();
    crate::spawn(async move {
        let begun = Instant::now();
        tokio::select! {
            _ = shell.wait() => {}
            // An error: it is let go of, and ends by itself.
            Ok(pipe) = replaced => {
                let _ = shell.kill().await;
                drop(pipe);
                return;
            }
        }
        let unexpected = WATCHDOG.lock().shell.take_if(|current| current.id == id).is_some();
        if unexpected {
            tokio::time::sleep(SOON.saturating_sub(begun.elapsed())).await;
            let mut watchdog = WATCHDOG.lock();
            if watchdog.shell.is_none() && !watchdog.groups.is_empty() {
                watchdog.start();
            }
        }
    });
    Ok(Shell { pipe, id, replace })
}

#[cfg(test)]
mod tests {
    use nix::{
        sys::signal::{Signal, kill},
        unistd::Pid,
    };

    use super::*;

    #[tokio::test]
    async fn a_stopped_watchdog_is_replaced_and_ends_no_living_group() {
        let mut living =
            Command::new("sleep").arg("600").process_group(0).kill_on_drop(true).spawn().unwrap();
        let _watched = watch(living.id().unwrap());
        let id = |watchdog: &Mutex<Watchdog>| watchdog.lock().shell.as_ref().map(|shell| shell.id);
        let first = id(&WATCHDOG).unwrap();
        let shell = Pid::from_raw(first.cast_signed());
        kill(shell, Signal::SIGSTOP).unwrap();
        // Numbers that no group can have, until the pipe is full.
        for number in 0..20_000 {
            drop(watch(50_000_000 + number));
        }
        assert!(id(&WATCHDOG).is_some_and(|second| second != first));
        // It may be gone already.
        let _ = kill(shell, Signal::SIGCONT);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(living.try_wait().unwrap().is_none(), "the group lives");
        assert!(kill(shell, None).is_err(), "the first one is gone");
        living.kill().await.unwrap();
    }
}
