//! Several servers at once, whose tools have names of their own.

use std::{collections::HashSet, sync::Arc};

use futures_util::future::join_all;
use indexmap::IndexMap;

use super::{Connection, connect};
use crate::{
    error::{Error, Result},
    mcp::config::ServerConfig,
};

/// What came of connecting several servers.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct ConnectAll {
    /// The servers that are ready, in the order of the configuration.
    pub connections: IndexMap<String, Arc<Connection>>,
    /// The servers that are not, each with its reason.
    pub failed: IndexMap<String, Error>,
}

/// Connect several servers at once. Disabled entries are skipped; a faulty one costs itself.
///
/// Tool names are unique over all of them: of two that collide, the one later in the
/// configuration gets a hash suffix.
pub async fn connect_all(servers: impl IntoIterator<Item = (String, Result<ServerConfig>)>) -> ConnectAll {
    let attempts = servers.into_iter().map(|(name, config)| async move {
        let result = match config {
            Ok(config) if config.disabled => None,
            Ok(config) => Some(connect(&name, config).await),
            Err(error) => Some(Err(error)),
        };
        (name, result)
    });
    let mut all = ConnectAll::default();
    let mut taken = HashSet::new();
    for (name, result) in join_all(attempts).await {
        match result {
            None => {}
            Some(Ok(connection)) => {
                for note in connection.claim_names(&mut taken) {
                    tracing::warn!(server = name, note);
                }
                all.connections.insert(name, connection);
            }
            Some(Err(error)) => {
                tracing::warn!(server = name, %error, "server left out");
                all.failed.insert(name, error);
            }
        }
    }
    all
}
