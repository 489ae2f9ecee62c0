//! The process-wide tokio runtime: the one place that starts threads.
//!
//! It is created at first use and lives as long as the process. After a `fork` the child gets a
//! runtime of its own, because the parent's worker threads do not exist there.

use std::{future::Future, sync::OnceLock};

use parking_lot::Mutex;
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::JoinHandle,
};

static RUNTIME: OnceLock<Mutex<Option<(u32, &'static Runtime)>>> = OnceLock::new();

/// Worker threads. Reading servers is light work, blocking work has threads of its own, and a second
/// worker costs each reply a wake-up that looks for work to steal.
const WORKERS: usize = 1;

/// The handle of the process-wide runtime.
///
/// # Panics
/// When the operating system refuses to start the worker threads.
pub fn handle() -> Handle {
    let pid = std::process::id();
    let mut slot = RUNTIME.get_or_init(|| Mutex::new(None)).lock();
    match *slot {
        Some((owner, runtime)) if owner == pid => runtime.handle().clone(),
        _ => {
            let runtime = Builder::new_multi_thread()
                .worker_threads(WORKERS)
                .thread_name("nanobot-tools")
                .enable_all()
                .build()
                .expect("the operating system refused to start the runtime's threads");
            // Leaked on purpose: a runtime inherited through fork must never be dropped, since
            // joining threads that do not exist here would block for ever.
            let runtime: &'static Runtime = Box::leak(Box::new(runtime));
            *slot = Some((pid, runtime));
            runtime.handle().clone()
        }
    }
}

/// Run a future on the process-wide runtime.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match Handle::try_current() {
        // Inside a runtime (ours, or that of a Rust program or test) stay on it.
        Ok(current) => current.spawn(future),
        Err(_) => handle().spawn(future),
    }
}

/// Run blocking work on the runtime's pool of blocking threads.
pub fn spawn_blocking<F, T>(work: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match Handle::try_current() {
        Ok(current) => current.spawn_blocking(work),
        Err(_) => handle().spawn_blocking(work),
    }
}
