//! What is trusted over TLS: the operating system's certificates, or Mozilla's where there are none.

use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore, crypto::ring};
use rustls_platform_verifier::BuilderVerifierExt;

use super::error::{NetError, NetErrorKind};

/// Read once: the certificates take milliseconds, and every server trusts the same.
static TRUSTED: OnceLock<Result<ClientConfig, String>> = OnceLock::new();

/// For connections that use TLS.
pub(super) fn trusting() -> Result<ClientConfig, NetError> {
    TRUSTED
        .get_or_init(|| build().map_err(|error| error.to_string()))
        .clone()
        .map_err(|text| NetError::new(NetErrorKind::Tls, false, format!("TLS cannot be set up: {text}")))
}

/// For connections that do not: it trusts nobody and costs nothing.
pub(super) fn trusting_nobody() -> Result<ClientConfig, NetError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| NetError::new(NetErrorKind::Tls, false, format!("TLS cannot be set up: {error}")))?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn build() -> Result<ClientConfig, rustls::Error> {
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
    };
    let mut config = match builder()?.with_platform_verifier() {
        Ok(builder) => builder.with_no_client_auth(),
        Err(error) => {
            tracing::debug!(%error, "the system has no certificates; Mozilla's are used");
            let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
            builder()?.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}
