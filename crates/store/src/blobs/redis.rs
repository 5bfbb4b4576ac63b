//! Objects on the Redis server that has the rows: no second service to run. They take the server's memory, so objects
//! larger than some megabytes are better off in a directory or in S3.
//!
//! ```text
//! …:object:<name>           a hash: the chunks by number, and `len`
//! …:objects                 a sorted set: `<name>/<len>` of every whole object
//! …:part:<name>/<writer>    chunks of an object that is being written
//! …:parts                   a sorted set: `<name>/<writer>` of all those
//! ```
//!
//! A part becomes the object by being renamed, in a script that first checks that the name is free.

use super::{
    Blobs, ByteStream, Chunks, ContentInfo, Error, Listed, ObjectName, ObjectState, Page,
    content::{adopt_by_copying, digest, in_pieces},
    objects::Parts,
};
use crate::{
    backend::redis::{ObjectScript, Redis},
    records::{self, Records},
    world::BoxFuture,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use onceflow_core::{
    Shard,
    limits::{CHUNK_BYTES_MAX, LIST_OBJECTS_MAX},
};
use redis::{Cmd, FromRedisValue, Value};
use std::{collections::BTreeMap, ops::Range, path::Path, sync::Arc};

/// Objects of one shard on a Redis server.
#[derive(Clone)]
pub struct RedisObjects {
    redis: Redis,
    shard: Shard,
    place: Arc<str>,
}

/// The answers of scripts.
const DONE: i64 = 0;
const TAKEN: i64 = 1;

static CREATE: ObjectScript = ObjectScript::new(
    "if redis.call('EXISTS', KEYS[1]) == 1 then return 1 end
     redis.call('HSET', KEYS[1], 'len', ARGV[2])
     if #ARGV[3] > 0 then redis.call('HSET', KEYS[1], '0', ARGV[3]) end
     redis.call('ZADD', KEYS[2], 0, ARGV[1])
     return 0",
);
static WRITE: ObjectScript = ObjectScript::new(
    "if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 2 end
     redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
     return 0",
);
static FINISH: ObjectScript = ObjectScript::new(
    "if redis.call('EXISTS', KEYS[3]) == 1 then return 1 end
     if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 2 end
     if redis.call('HLEN', KEYS[2]) ~= tonumber(ARGV[2]) then return 2 end
     redis.call('HSET', KEYS[2], 'len', ARGV[3])
     redis.call('RENAME', KEYS[2], KEYS[3])
     redis.call('ZREM', KEYS[1], ARGV[1])
     redis.call('ZADD', KEYS[4], 0, ARGV[4])
     return 0",
);

impl RedisObjects {
    /// The objects of a shard.
    pub fn new(redis: Redis, shard: Shard) -> Self {
        let place = redis.address().to_string().into();
        RedisObjects { redis, shard, place }
    }

    fn key(&self, kind: &str) -> String {
        self.redis.object_key(self.shard, kind)
    }

    fn object(&self, name: ObjectName) -> String {
        self.key(&format!("object:{name}"))
    }

    async fn call(&self, command: &Cmd) -> Result<Value, Error> {
        self.redis.object_call(self.shard, command).await.map_err(|error| self.trouble(error))
    }

    async fn script(&self, script: &ObjectScript, keys: &[String], arguments: &[&[u8]]) -> Result<i64, Error> {
        let answer = self.redis.object_script(self.shard, script, keys, arguments).await;
        match answer.map_err(|error| self.trouble(error))? {
            Value::Int(answer) => Ok(answer),
            other => Err(Error::unknown(&self.place, format_args!("a strange answer: {other:?}"))),
        }
    }

    fn trouble(&self, error: records::Error) -> Error {
        match error {
            records::Error::Full(why) => Error::Full { place: self.place.clone(), why },
            records::Error::Unknown(why) => Error::unknown(&self.place, why),
            other => Error::unavailable(&self.place, other),
        }
    }

    async fn write(&self, name: ObjectName, content: ByteStream) -> Result<ContentInfo, Error> {
        let mut parts = Parts::of(in_pieces(content), CHUNK_BYTES_MAX);
        let first = parts.next(name).await?;
        let answer = if parts.ended {
            let stored = parts.hashing.info();
            let member = format!("{name}/{}", stored.len);
            let keys = [self.object(name), self.key("objects")];
            let first = joined(first);
            self.script(&CREATE, &keys, &[member.as_bytes(), stored.len.to_string().as_bytes(), &first]).await?
        } else {
            self.write_parts(name, joined(first), &mut parts).await?
        };
        let stored = parts.hashing.info();
        match answer {
            DONE => {
                let durable = self.redis.durable(self.redis.position()).await;
                durable.map_err(|error| self.trouble(error))?;
                Ok(stored)
            }
            TAKEN => self.compare(name, stored).await,
            _ => Err(Error::unknown(&self.place, "the object was deleted while it was written")),
        }
    }

    async fn write_parts(&self, name: ObjectName, first: Bytes, parts: &mut Parts) -> Result<i64, Error> {
        let member = format!("{name}/{:032x}", self.redis.random());
        let (all, part) = (self.key("parts"), self.key(&format!("part:{member}")));
        self.call(redis::cmd("ZADD").arg(&all).arg(0).arg(&member)).await?;
        let written = async {
            let (mut chunk, mut at) = (first, 0_u64);
            loop {
                let keys = [all.clone(), part.clone()];
                let arguments = [member.as_bytes(), at.to_string().as_bytes(), &chunk].map(<[u8]>::to_vec);
                let answer = self.script(&WRITE, &keys, &arguments.each_ref().map(Vec::as_slice)).await?;
                at += 1;
                if answer != DONE {
                    return Ok((answer, at));
                }
                if parts.ended {
                    return Ok((DONE, at));
                }
                chunk = joined(parts.next(name).await?);
                if chunk.is_empty() {
                    return Ok((DONE, at));
                }
            }
        };
        let answer = match written.await {
            Ok((DONE, chunks)) => {
                let len = parts.hashing.info().len;
                let keys = [all.clone(), part.clone(), self.object(name), self.key("objects")];
                let arguments = [member.clone(), chunks.to_string(), len.to_string(), format!("{name}/{len}")]
                    .map(String::into_bytes);
                self.script(&FINISH, &keys, &arguments.each_ref().map(Vec::as_slice)).await
            }
            Ok((answer, _)) => Ok(answer),
            Err(error) => Err(error),
        };
        if !matches!(answer, Ok(DONE)) {
            self.drop_part(&member).await?;
        }
        answer
    }

    async fn drop_part(&self, member: &str) -> Result<(), Error> {
        // First the chunks, which take space: while the part is listed it is found again.
        self.call(redis::cmd("UNLINK").arg(self.key(&format!("part:{member}")))).await?;
        self.call(redis::cmd("ZREM").arg(self.key("parts")).arg(member)).await?;
        Ok(())
    }

    /// Compares with the object that has taken the name: it is of an earlier try of ours whose reply was lost, or
    /// another.
    async fn compare(&self, name: ObjectName, stored: ContentInfo) -> Result<ContentInfo, Error> {
        let chunks = match self.read_range(name, None).await {
            Err(Error::Missing { .. }) => {
                return Err(Error::unknown(&self.place, "it was stored, and has disappeared"));
            }
            read => read?,
        };
        if digest(chunks).await? == stored {
            return Ok(stored);
        }
        Err(Error::Exists { name, place: self.place.clone() })
    }

    async fn len(&self, name: ObjectName) -> Result<u64, Error> {
        let len = self.call(redis::cmd("HGET").arg(self.object(name)).arg("len")).await.map_err(reading)?;
        let len = Option::<u64>::from_redis_value(len);
        let len = len.map_err(|error| Error::damaged(name, &self.place, error))?;
        len.ok_or_else(|| self.missing(name))
    }

    fn missing(&self, name: ObjectName) -> Error {
        Error::Missing { name, place: self.place.clone() }
    }

    async fn read_range(&self, name: ObjectName, range: Option<Range<u64>>) -> Result<Chunks, Error> {
        let len = self.len(name).await?;
        let range =
            super::within(range, len).map_err(|range| Error::Range { name, place: self.place.clone(), range, len })?;
        let (objects, size) = (self.clone(), CHUNK_BYTES_MAX as u64);
        let next = move |at: u64| {
            let (objects, end) = (objects.clone(), range.end);
            async move {
                if at >= end {
                    return Ok(None);
                }
                let chunk = objects.chunk(name, at / size, len).await?;
                let from = (at % size) as usize;
                let to = (end - at).min((chunk.len() - from) as u64) as usize + from;
                Ok(Some((chunk.slice(from..to), at + (to - from) as u64)))
            }
        };
        Ok(stream::try_unfold(range.start, next).boxed())
    }

    /// A chunk of an object; all but the last are full.
    async fn chunk(&self, name: ObjectName, number: u64, len: u64) -> Result<Bytes, Error> {
        let found = self.call(redis::cmd("HGET").arg(self.object(name)).arg(number)).await.map_err(reading)?;
        let Value::BulkString(chunk) = found else { return Err(self.missing(name)) };
        let wanted = (len - number * CHUNK_BYTES_MAX as u64).min(CHUNK_BYTES_MAX as u64);
        if chunk.len() as u64 != wanted {
            let why = format!("chunk {number} has {} bytes instead of {wanted}", chunk.len());
            return Err(Error::damaged(name, &self.place, why));
        }
        Ok(chunk.into())
    }

    /// The members of a sorted set that begin with names after this one, or with this very one.
    async fn members(&self, set: &str, from: String, to: String, limit: usize) -> Result<Vec<String>, Error> {
        let mut command = redis::cmd("ZRANGEBYLEX");
        command.arg(self.key(set)).arg(from).arg(to).arg("LIMIT").arg(0).arg(limit);
        let found = self.call(&command).await.map_err(reading)?;
        Vec::from_redis_value(found).map_err(|error| Error::unavailable(&self.place, error))
    }

    async fn remove(&self, name: ObjectName) -> Result<(), Error> {
        let (from, to) = (format!("[{name}/"), format!("({name}0"));
        for member in self.members("parts", from.clone(), to.clone(), LIST_OBJECTS_MAX).await? {
            self.drop_part(&member).await?;
        }
        self.call(redis::cmd("UNLINK").arg(self.object(name))).await?;
        self.call(redis::cmd("ZREMRANGEBYLEX").arg(self.key("objects")).arg(from).arg(to)).await?;
        Ok(())
    }

    /// Lists unfinished objects first: one that becomes whole meanwhile is then seen in one of the two.
    async fn page(&self, after: Option<ObjectName>, limit: usize) -> Result<Page, Error> {
        let mut found = BTreeMap::new();
        let from = after.map_or_else(|| String::from("-"), |after| format!("[{after}0"));
        for set in ["parts", "objects"] {
            for member in self.members(set, from.clone(), "+".into(), limit + 1).await? {
                let Some((name, rest)) = member.split_once('/') else { continue };
                let (Ok(name), len) = (name.parse::<ObjectName>(), rest.parse()) else { continue };
                let state = match (set, len) {
                    ("objects", Ok(len)) => ObjectState::Whole { len },
                    _ => ObjectState::Unfinished,
                };
                found.insert(name, state);
            }
        }
        let more = found.len() > limit;
        let objects = found.into_iter().take(limit).map(|(name, state)| Listed { name, state }).collect();
        Ok(Page { objects, more })
    }
}

/// The error for a call that only read: nothing changed.
fn reading(error: Error) -> Error {
    match error {
        Error::Unknown { place, why } => Error::Unavailable { place, why },
        other => other,
    }
}

/// A part in one piece.
fn joined(part: object_store::PutPayload) -> Bytes {
    part.into()
}

impl Blobs for RedisObjects {
    fn create(&self, name: ObjectName, content: ByteStream) -> BoxFuture<'_, Result<ContentInfo, Error>> {
        Box::pin(self.write(name, content))
    }

    fn adopt<'a>(&'a self, name: ObjectName, path: &'a Path) -> BoxFuture<'a, Result<ContentInfo, Error>> {
        Box::pin(adopt_by_copying(self, &self.place, name, path))
    }

    fn read(&self, name: ObjectName, range: Option<Range<u64>>) -> BoxFuture<'_, Result<Chunks, Error>> {
        Box::pin(self.read_range(name, range))
    }

    fn size(&self, name: ObjectName) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.len(name))
    }

    fn delete(&self, name: ObjectName) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.remove(name))
    }

    fn list(&self, after: Option<ObjectName>, limit: usize) -> BoxFuture<'_, Result<Page, Error>> {
        Box::pin(self.page(after, limit.min(LIST_OBJECTS_MAX)))
    }
}
