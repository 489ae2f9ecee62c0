//! Handles on calls that are under way.

/// A call that was handed over with [`Tool::submit`](crate::Tool::submit).
///
/// Dropping it does nothing, since the call's completion is delivered in any case;
/// [`cancel`](Self::cancel) asks the tool to stop.
#[must_use]
pub struct Running(Option<Box<dyn FnOnce() + Send>>);

impl Running {
    /// A running call that `stop` can end.
    pub fn new(stop: impl FnOnce() + Send + 'static) -> Self {
        Self(Some(Box::new(stop)))
    }

    /// A call that has ended already, or that cannot be stopped.
    pub const fn finished() -> Self {
        Self(None)
    }

    /// Ask the call to stop. Its completion is still delivered, with
    /// [`Error::Cancelled`](crate::Error::Cancelled) unless a result came first.
    pub fn cancel(mut self) {
        if let Some(stop) = self.0.take() {
            stop();
        }
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Running").field(&self.0.is_some()).finish()
    }
}
