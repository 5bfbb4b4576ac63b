//! The TLS provider for connections to Redis and S3.

/// Installs ring as the TLS provider of this process, unless the process has installed another one already. Clients are
/// built without a provider of their own and panic when there is none.
pub(crate) fn install_provider() {
    drop(rustls::crypto::ring::default_provider().install_default());
}
