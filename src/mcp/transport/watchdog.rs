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
    io::{PipeWriter, Write},
    os::fd::AsFd,
    process::Stdio,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use parking_lot::Mutex;
use tokio::process::Command;

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

static WATCHDOG: Mutex<Watchdog> = Mutex::new(Watchdog { groups: BTreeSet::new(), pipe: None, number: 0 });

struct Watchdog {
    groups: BTreeSet<u32>,
    pipe: Option<PipeWriter>,
    /// Counts the shells, so that the end of an earlier one concerns nobody.
    number: u64,
}

/// A group that is ended if this process dies; until this is dropped.
#[derive(Debug)]
pub(super) struct Watched(u32);

/// Have the group of this leader ended if this process dies.
pub(super) fn watch(leader: u32) -> Watched {
    let mut watchdog = WATCHDOG.lock();
    watchdog.groups.insert(leader);
    watchdog.say('+', leader);
    Watched(leader)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watchdog = WATCHDOG.lock();
        if !watchdog.groups.remove(&self.0) {
            return; // of the process that this one was forked from
        }
        if watchdog.groups.is_empty() {
            // It ends with its input.
            watchdog.pipe = None;
        } else {
            watchdog.say('-', self.0);
        }
    }
}

/// In a process that was forked: let go of the parent's watchdog, which would wait for this process too.
pub(crate) fn forget() {
    // A thread that does not exist here may have held the lock; then nothing can be done.
    if let Some(mut watchdog) = WATCHDOG.try_lock() {
        watchdog.pipe = None;
        watchdog.groups.clear();
    }
}

impl Watchdog {
    /// Tell the shell; one that is not there, or does not listen, is replaced by one that knows all.
    fn say(&mut self, sign: char, group: u32) {
        let line = format!("{sign} {group}\n");
        let heard = self.pipe.as_mut().is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok());
        if !heard && let Err(error) = self.start() {
            tracing::debug!(%error, "no watchdog: servers may survive if this process is killed");
        }
    }

    fn start(&mut self) -> std::io::Result<()> {
        self.pipe = None;
        self.number += 1;
        let number = self.number;
        // Closed when this process runs another program, and not inherited by what it starts.
        let (input, mut pipe) = std::io::pipe()?;
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", SCRIPT, "nanobot-tools-watchdog"])
            .env_clear()
            .stdin(Stdio::from(input))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .current_dir("/")
            .process_group(0);
        let mut shell = shell.spawn()?;
        for group in &self.groups {
            writeln!(pipe, "+ {group}")?;
        }
        // From here on nobody waits for it: a full pipe means that it is stopped.
        fcntl(pipe.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        self.pipe = Some(pipe);
        crate::spawn(async move {
            let _ = shell.wait().await;
            let mut watchdog = WATCHDOG.lock();
            if watchdog.number == number
                && watchdog.pipe.is_some()
                && let Err(error) = watchdog.start()
            {
                tracing::debug!(%error, "no watchdog: servers may survive if this process is killed");
            }
        });
        Ok(())
    }
}
