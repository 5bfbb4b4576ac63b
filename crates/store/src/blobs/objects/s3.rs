//! Objects in an S3-compatible bucket. Relies on conditional writes (`If-None-Match: *`), which AWS has for single
//! puts since August and for completing uploads since November 2024.

use super::{Objects, StorePath, Uploads};
use crate::{blobs::Error, world::World};
use object_store::{
    ClientOptions, HeaderMap, HeaderValue,
    aws::{AmazonS3, AmazonS3Builder},
};
use onceflow_core::limits::PART_BYTES;
use std::sync::Arc;

/// The bucket, and how to reach it. Settings not given come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_REGION`
/// …), as for other tools.
///
/// Give the bucket a lifecycle rule that ends incomplete multipart uploads, as a second net under ours.
#[derive(Clone, Debug, Default)]
pub struct S3 {
    /// The bucket.
    pub bucket: String,
    /// Everything is stored under this path; empty for the whole bucket.
    pub prefix: String,
    /// The server, if not AWS: `http://127.0.0.1:9000`. Buckets are then part of the path.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// Access key and secret, if not from the environment.
    pub keys: Option<(String, String)>,
}

impl S3 {
    /// Opens the bucket; nothing is asked of the server yet.
    ///
    /// # Errors
    /// When the settings do not fit together.
    pub fn open(&self, world: Arc<dyn World>) -> Result<Objects, Error> {
        let place: Arc<str> = format!("the bucket s3://{}/{}", self.bucket, self.prefix).into();
        let client = |headers| self.client(headers).map_err(|error| Error::unavailable(&place, error));
        let store = Arc::new(client(HeaderMap::new())?);
        // `object_store` 0.14 completes an upload unconditionally, and would replace what is there. It does send the
        // headers a client was built with, so a second client, used for nothing else, asks the right question.
        let mut only_if_free = HeaderMap::new();
        only_if_free.insert("if-none-match", HeaderValue::from_static("*"));
        let completing = Arc::new(client(only_if_free)?);
        let uploads = Some(Uploads::new(store.clone(), completing, PART_BYTES, world));
        Ok(Objects { store, uploads, prefix: StorePath::from(self.prefix.as_str()), place })
    }

    fn client(&self, headers: HeaderMap) -> object_store::Result<AmazonS3> {
        crate::tls::install_provider();
        let plain = self.endpoint.as_ref().is_some_and(|endpoint| endpoint.starts_with("http://"));
        let options = ClientOptions::new().with_default_headers(headers).with_allow_http(plain);
        let mut builder = AmazonS3Builder::from_env()
            .with_client_options(options)
            .with_bucket_name(&self.bucket)
            .with_disable_bulk_delete(true);
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        if let Some((access, secret)) = &self.keys {
            builder = builder.with_access_key_id(access).with_secret_access_key(secret);
        }
        builder.build()
    }
}
