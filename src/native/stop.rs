//! Stopping blocking work: a flag that a dropped future raises, and a deadline.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crate::{
    error::{Error, Result},
    runtime,
    tool::{BoxFuture, CallContext, ToolOutput, panic_text, timed_out},
};

/// What blocking work asks now and then.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    raised: Arc<AtomicBool>,
    started: Instant,
    deadline: Option<Instant>,
}

impl Stop {
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self { raised: Arc::new(AtomicBool::new(false)), started: Instant::now(), deadline }
    }

    /// # Errors
    /// [`Error::Cancelled`] or [`Error::Timeout`] when the work must end.
    pub(super) fn check(&self) -> Result<()> {
        if self.raised.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        match self.deadline {
            Some(deadline) if Instant::now() >= deadline => {
                Err(timed_out(deadline.saturating_duration_since(self.started)))
            }
            _ => Ok(()),
        }
    }
}

struct RaiseOnDrop(Arc<AtomicBool>);

impl Drop for RaiseOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Run `work` on the blocking pool; dropping the future, or the context's deadline, stops it.
pub(super) fn blocking<F>(context: &CallContext, work: F) -> BoxFuture<Result<ToolOutput>>
where
    F: FnOnce(&Stop) -> Result<ToolOutput> + Send + 'static,
{
    let stop = Stop::new(context.deadline);
    Box::pin(async move {
        let _raise = RaiseOnDrop(Arc::clone(&stop.raised));
        let job = runtime::spawn_blocking(move || {
            stop.check()?;
            work(&stop)
        });
        match job.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => Err(Error::Panic(panic_text(&*error.into_panic()))),
            Err(_) => Err(Error::Cancelled),
        }
    })
}
