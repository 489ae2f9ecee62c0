//! Names to addresses, with the judgement in between.
//!
//! The connector dials what [`Judged`] hands on and asks nobody else, so that the address that was
//! judged is the address that is dialled. A name with one address that is not admitted is refused
//! as a whole: it cannot be told which of them would be taken.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::{Policy, Refusal};
use crate::BoxFuture;

/// Asks for the addresses of a name.
pub(super) trait Lookup: Send + Sync {
    fn lookup(&self, name: &str) -> BoxFuture<io::Result<Vec<SocketAddr>>>;
}

/// The operating system's resolver.
pub(super) struct System;

impl Lookup for System {
    fn lookup(&self, name: &str) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
        let name = name.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
    }
}

/// A resolver for what is dialled directly.
pub(super) struct Judged {
    pub(super) policy: Arc<Policy>,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for Judged {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = Arc::clone(&self.policy);
        let asked = self.lookup.lookup(name.as_str());
        Box::pin(async move {
            let addresses = asked.await?;
            judge_all(&policy, name.as_str(), &addresses)?;
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

fn judge_all(policy: &Policy, name: &str, addresses: &[SocketAddr]) -> Result<(), Refusal> {
    addresses.iter().try_for_each(|address| policy.judge(Some(name), address.ip()))
}

/// How long a name is looked up that a proxy will resolve itself.
const HINT: Duration = Duration::from_secs(1);

/// Judge a name that a proxy resolves. What this machine cannot resolve is the proxy's to know.
///
/// # Errors
/// When the name leads to an address that is not admitted.
pub(super) async fn judge_for_proxy(policy: &Policy, lookup: &dyn Lookup, name: &str) -> Result<(), Refusal> {
    match tokio::time::timeout(HINT, lookup.lookup(name)).await {
        Ok(Ok(addresses)) => judge_all(policy, name, &addresses),
        Ok(Err(_)) | Err(_) => Ok(()),
    }
}
