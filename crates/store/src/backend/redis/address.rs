//! Where a server is and how we use it, as one URL says it: `redis://user:password@host:6379/0?prefix=team&accept=everysec`.

use super::risks::Risk;
use crate::sync::{Mutex, lock};
use onceflow_core::Shard;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsCertificates};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
};

/// Names in the environment that give what should not stand in a URL.
pub const USERNAME_VARIABLE: &str = "ONCEFLOW_REDIS_USERNAME";
/// See [`USERNAME_VARIABLE`].
pub const PASSWORD_VARIABLE: &str = "ONCEFLOW_REDIS_PASSWORD";

/// How long a server may take to answer unless it is said otherwise. A commit that took longer may have happened.
const REPLY_MS_MAX: u64 = 10_000;

/// A server, and how we use it. Shows itself without the password.
#[derive(Clone)]
pub struct Address {
    info: ConnectionInfo,
    tls: Option<TlsCertificates>,
    /// The prefix of all our keys on the server.
    pub(super) prefix: Arc<str>,
    /// The risks to acknowledged commits that the user accepted.
    pub(super) accepted: BTreeSet<Risk>,
    /// Replicas that must have a commit before it counts as durable.
    pub(super) replicas: u32,
    /// How long the server may take to answer, in milliseconds.
    pub(super) reply_ms_max: u64,
    /// Where large values go.
    blobs: BlobLocation,
    shards: Arc<Mutex<BTreeMap<Shard, Arc<ShardKeys>>>>,
}

/// Where the large values of a store on a server are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BlobLocation {
    /// On the server itself.
    #[default]
    Server,
    /// In a directory that all workers share.
    Directory(PathBuf),
    /// In an S3-compatible bucket. Keys, region and server come from the environment (`AWS_ACCESS_KEY_ID`,
    /// `AWS_ENDPOINT_URL` …).
    S3 {
        /// The bucket.
        bucket: String,
        /// Everything is stored under this path.
        prefix: String,
    },
}

impl FromStr for BlobLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
            Some(_) if !cfg!(feature = "s3") => Err("this program was built without S3 (feature `s3`)".into()),
            Some(("", _)) => Err(format!("`{text}` names no bucket: `s3://bucket/path`")),
            Some((bucket, prefix)) => Ok(BlobLocation::S3 { bucket: bucket.into(), prefix: prefix.into() }),
            None if text == "redis" => Ok(BlobLocation::Server),
            None if Path::new(text).is_absolute() => Ok(BlobLocation::Directory(text.into())),
            None => {
                Err(format!("`{text}` is no place for large values: `redis`, `/a/directory` or `s3://bucket/path`"))
            }
        }
    }
}

/// The keys of one shard. They share a hash tag, so a cluster keeps them together.
#[derive(Debug)]
pub(super) struct ShardKeys {
    /// As the scripts want them: rows, names, free, held, turns, clock.
    pub(super) all: [String; 6],
    /// The channel that wakes those who wait.
    pub(super) channel: String,
}

impl ShardKeys {
    pub(super) fn clock(&self) -> &str {
        &self.all[5]
    }

    pub(super) fn rows(&self) -> &str {
        &self.all[0]
    }
}

/// A URL that says nothing we understand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} (in `{url}`)")]
pub struct BadAddress {
    /// The URL, without the password.
    pub url: String,
    /// The mistake, and how to correct it.
    pub what: String,
}

impl Address {
    /// Reads a URL.
    ///
    /// | parameter | meaning |
    /// |---|---|
    /// | `prefix=NAME` | what our keys begin with, so that several stores share a server; `onceflow` if not given |
    /// | `accept=RISK,…` | settings of the server that may lose acknowledged commits, and are accepted; see [`Risk`] |
    /// | `replicas=N` | a commit is durable only when so many replicas have it (`WAIT`, or `WAITAOF` where the server has it) |
    /// | `blobs=PLACE` | where large values go: a directory all workers share, `s3://bucket/prefix`, or `redis`, the default |
    /// | `timeout=SECONDS` | how long the server may take to answer before it counts as lost; 10 if not given |
    /// | `ca=FILE` | with `rediss`: a PEM file of the authorities to trust, instead of the system's |
    ///
    /// # Errors
    /// If it is no URL of a server, or has a parameter that means nothing.
    pub fn parse(url: &str) -> Result<Self, BadAddress> {
        let bad = |what: String| BadAddress { url: redacted(url), what };
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if !["redis://", "rediss://"].iter().any(|scheme| base.starts_with(scheme)) {
            return Err(bad("the URL of a server begins with `redis://`, or with `rediss://` for TLS".into()));
        }
        let info = base.into_connection_info().map_err(|error| bad(format!("this is no URL of a server: {error}")))?;
        let mut address = Address {
            info,
            tls: None,
            prefix: "onceflow".into(),
            accepted: BTreeSet::new(),
            replicas: 0,
            reply_ms_max: REPLY_MS_MAX,
            blobs: BlobLocation::default(),
            shards: Arc::default(),
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            address.set(name, &unescaped(value)).map_err(bad)?;
        }
        Ok(address)
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "prefix" => {
                let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.:".contains(letter);
                if value.is_empty() || value.len() > 64 || !value.chars().all(is_plain) {
                    return Err(format!("`{value}` is no prefix: letters, digits, `-`, `_`, `.` and `:`, at most 64"));
                }
                self.prefix = value.into();
            }
            "accept" => {
                for word in value.split(',') {
                    self.accepted.insert(word.parse()?);
                }
            }
            "replicas" => {
                self.replicas = value.parse().map_err(|_| format!("`{value}` is no number of replicas"))?;
            }
            "timeout" => {
                let seconds = value.parse::<f64>().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
                let seconds = seconds.ok_or_else(|| format!("`{value}` is no timeout: seconds, from 0.1 to 600"))?;
                self.reply_ms_max = (seconds * 1000.0) as u64;
            }
            "blobs" => self.blobs = value.parse()?,
            "ca" => {
                let read = std::fs::read(value).map_err(|error| format!("`{value}` cannot be read: {error}"))?;
                self.tls = Some(TlsCertificates { client_tls: None, root_cert: Some(read) });
            }
            other => {
                let known = "prefix, accept, replicas, timeout, blobs, ca";
                return Err(format!("`{other}` is no parameter; there are {known}"));
            }
        }
        Ok(())
    }

    /// Takes name and password from the environment where the URL gives none.
    pub fn with_environment(mut self, variable: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = self.info.redis_settings().clone();
        if settings.username().is_none()
            && let Some(name) = variable(USERNAME_VARIABLE)
        {
            settings = settings.set_username(name);
        }
        if settings.password().is_none()
            && let Some(password) = variable(PASSWORD_VARIABLE)
        {
            settings = settings.set_password(password);
        }
        self.info = self.info.set_redis_settings(settings);
        self
    }

    /// Accepts one more risk.
    pub fn accept(mut self, risk: Risk) -> Self {
        self.accepted.insert(risk);
        self
    }

    /// Where large values go.
    pub fn blobs(&self) -> &BlobLocation {
        &self.blobs
    }

    /// A client for this server, or for another node of the same cluster.
    pub(super) fn client(&self, node: Option<&str>) -> redis::RedisResult<redis::Client> {
        let mut info = self.info.clone();
        if let Some((host, port)) = node.and_then(|node| node.rsplit_once(':')) {
            let (host, port) = (host.trim_matches(['[', ']']).to_owned(), port.parse().unwrap_or(0));
            info = info.clone().set_addr(match self.info.addr() {
                ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                    ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
                }
                _ => ConnectionAddr::Tcp(host, port),
            });
        }
        if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) {
            crate::tls::install_provider();
        }
        match &self.tls {
            Some(tls) => redis::Client::build_with_tls(info, tls.clone()),
            None => redis::Client::open(info),
        }
    }

    /// The keys of a shard.
    pub(super) fn keys(&self, shard: Shard) -> Arc<ShardKeys> {
        let make = || {
            let tag = format!("{{{}:{}}}", self.prefix, shard.0);
            let all = ["rows", "names", "free", "held", "turns", "clock"].map(|name| format!("{tag}:{name}"));
            Arc::new(ShardKeys { all, channel: format!("{tag}:ready") })
        };
        lock(&self.shards).entry(shard).or_insert_with(make).clone()
    }

    /// The channels of all shards.
    pub(super) fn channels(&self) -> String {
        format!("{{{}:*}}:ready", self.prefix)
    }

    /// The shard whose channel this is.
    pub(super) fn shard_of(&self, channel: &str) -> Option<Shard> {
        let rest = channel.strip_prefix('{')?.strip_prefix(&*self.prefix)?.strip_prefix(':')?;
        rest.strip_suffix("}:ready")?.parse().ok().map(Shard)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if matches!(self.info.addr(), ConnectionAddr::TcpTls { .. }) { "rediss" } else { "redis" };
        write!(f, "{scheme}://{}/{}", self.info.addr(), self.info.redis_settings().db())?;
        if &*self.prefix == "onceflow" { Ok(()) } else { write!(f, "?prefix={}", self.prefix) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL as it may be shown: without name and password.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    // A password may hold anything, also a slash that should have been escaped.
    let end = rest.find('?').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) => format!("{scheme}://***@{}", &rest[at + 1..]),
        None => url.to_owned(),
    }
}

/// `%41` is `A`.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = tail.get(..2).filter(|_| *first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_everything_and_shows_no_password() {
        let url = "redis://me:s3cret@box:7000/2?prefix=team.a&accept=everysec,eviction&replicas=1&blobs=%2Fshared%2Fb";
        let address = Address::parse(url).unwrap();
        assert_eq!(address.to_string(), "redis://box:7000/2?prefix=team.a");
        assert_eq!(format!("{address:?}"), address.to_string());
        assert_eq!(address.accepted, BTreeSet::from([Risk::Everysec, Risk::Eviction]));
        assert_eq!((address.replicas, address.blobs()), (1, &BlobLocation::Directory("/shared/b".into())));
        assert_eq!(redacted(url), url.replace("me:s3cret", "***"));
        assert_eq!(redacted("redis://:a/b@c"), "redis://***@c");
    }

    #[test]
    fn a_wrong_address_is_reported_without_the_password() {
        for (url, what) in [
            ("http://box", "begins with"),
            ("redis://u:pw@box?prefix=a b", "no prefix"),
            ("redis://u:pw@box?accept=all", "no risk"),
            ("redis://u:pw@box?colour=red", "no parameter"),
            ("redis://u:pw@box?blobs=here", "no place"),
            ("redis://u:pw@box?replicas=some", "number of replicas"),
        ] {
            let error = Address::parse(url).unwrap_err().to_string();
            assert!(error.contains(what) && !error.contains("pw"), "{error}");
        }
    }

    #[test]
    fn the_environment_gives_what_the_url_does_not() {
        let variable = |name: &str| Some(format!("value of {name}"));
        let address = Address::parse("redis://box").unwrap().with_environment(variable);
        assert_eq!(address.info.redis_settings().password(), Some("value of ONCEFLOW_REDIS_PASSWORD"));
        let address = Address::parse("redis://me:mine@box").unwrap().with_environment(variable);
        assert_eq!(address.info.redis_settings().password(), Some("mine"));
    }

    #[test]
    fn all_keys_of_a_shard_share_a_hash_tag_and_a_channel_names_its_shard() {
        let address = Address::parse("redis://box?prefix=p").unwrap();
        let keys = address.keys(Shard(7));
        assert!(keys.all.iter().chain([&keys.channel]).all(|key| key.starts_with("{p:7}:")));
        assert_eq!(address.shard_of(&keys.channel), Some(Shard(7)));
        assert_eq!(address.shard_of("{q:7}:ready"), None);
    }
}
