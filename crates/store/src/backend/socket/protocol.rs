//! The messages, and the greeting before them.
//!
//! The greeting is the same in all versions, so that two versions can tell each other which they are: each side sends
//! [`MAGIC`] and its [`VERSION`], the client first. Then the client says [`Hello`]: which process it is, and all claims that
//! it holds. The server answers with a [`Welcome`] when it grants claims, and the client sends requests; frame by frame,
//! each with the number of the call that it belongs to.
//!
//! After a [`Reply::Goodbye`] no reply follows, and **no request that is unanswered by then was executed**.

use super::{
    frame::{self, Broken, Message, Reader},
    limits,
    wire::{FlatBatch, FlatError},
};
use crate::{
    backend::held::HeldClaim,
    records::{CommitResult, Page, Position, Scan},
};
use onceflow_core::{Key, Row, Shard, Timestamp};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

/// How every connection begins.
const MAGIC: [u8; 8] = *b"onceflow";

/// The version of the messages. Both sides must speak the same: they are installed together, and a store outlives
/// its processes.
pub const VERSION: u32 = 2;

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The id of the process in the directory's `members`.
    pub member: u128,
    /// The claims it holds, whichever owner granted them.
    pub claims: Vec<HeldClaim>,
}

/// A part of a [`Hello`].
#[derive(Serialize, Deserialize)]
struct HelloPart {
    member: u128,
    claims: Vec<HeldClaim>,
    more: bool,
}

/// A server's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Names this opening of the store, for ever: positions are comparable within it.
    pub opening: u128,
    /// The process that serves, for people.
    pub holder: String,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    Get {
        shard: Shard,
        keys: Vec<Key>,
    },
    Scan {
        shard: Shard,
        scan: Scan,
    },
    Commit(FlatBatch),
    Now,
    Wait {
        shard: Shard,
        seen: Position,
        until: Timestamp,
    },
    /// The caller does not wait for the `Wait` of this call any more. It has no reply.
    Cancel,
}

/// A server's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// To a call, decided at a position that is durable.
    To { position: Position, answer: Result<ReplyBody, FlatError> },
    /// To no call: the server stops.
    Goodbye,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ReplyBody {
    Rows(Vec<Option<Row>>),
    Page(Page),
    Committed(CommitResult),
    Now(Timestamp),
    Woken,
}

pub(super) fn greeting() -> [u8; 12] {
    let mut greeting = [0; 12];
    greeting[..8].copy_from_slice(&MAGIC);
    greeting[8..].copy_from_slice(&VERSION.to_le_bytes());
    greeting
}

fn check_greeting(greeting: [u8; 12]) -> Result<(), Broken> {
    let (magic, version) = greeting.split_at(8);
    let theirs = u32::from_le_bytes(version.try_into().expect("four bytes"));
    match () {
        () if magic != MAGIC => Err(Broken::Stranger),
        () if theirs != VERSION => Err(Broken::Version { theirs, ours: VERSION }),
        () => Ok(()),
    }
}

/// The client's side of the greeting.
pub(super) async fn greet<R, W>(reader: &mut Reader<R>, writer: &mut W, hello: Hello) -> Result<Welcome, Broken>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut said = greeting().to_vec();
    let Hello { member, mut claims } = hello;
    loop {
        let rest = claims.split_off(claims.len().min(limits::HELLO_CLAIMS_MAX));
        let part = HelloPart { member, claims, more: !rest.is_empty() };
        frame::append(&mut said, 0, &part, limits::REQUEST_BYTES_MAX).expect("a thousand claims are short");
        claims = rest;
        if !part.more {
            break;
        }
    }
    // A server of another version answers and closes before it has read all of this: its answer counts.
    let written = writer.write_all(&said).await;
    match reader.exactly().await {
        Ok(greeting) => check_greeting(greeting)?,
        Err(broken) => return Err(written.err().map_or(broken, Broken::from)),
    }
    reader.next().await?.ok_or(Broken::Truncated)?.decode()
}

/// The server's side of the greeting, up to the client's hello. A stranger gets no answer; another version is told
/// ours.
pub(super) async fn hear_hello<R, W>(reader: &mut Reader<R>, writer: &mut W) -> Result<Hello, Broken>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match check_greeting(reader.exactly().await?) {
        Ok(()) => {}
        Err(broken @ Broken::Version { .. }) => {
            writer.write_all(&greeting()).await?;
            return Err(broken);
        }
        Err(broken) => return Err(broken),
    }
    let mut hello: Option<Hello> = None;
    loop {
        let part: HelloPart = reader.next().await?.ok_or(Broken::Truncated)?.decode()?;
        let all = hello.get_or_insert_with(|| Hello { member: part.member, claims: vec![] });
        if all.member != part.member || all.claims.len() > limits::CLAIMS_MAX {
            return Err(Broken::Garbage("a greeting that does not end".into()));
        }
        all.claims.extend(part.claims);
        if !part.more {
            return hello.ok_or(Broken::Truncated);
        }
    }
}

/// The server's answer to a client that it knows now.
pub(super) async fn welcome<W: AsyncWrite + Unpin>(writer: &mut W, welcome: &Welcome) -> Result<(), Broken> {
    let mut reply = greeting().to_vec();
    frame::append(&mut reply, 0, welcome, limits::REPLY_BYTES_MAX).expect("a welcome is short");
    Ok(writer.write_all(&reply).await?)
}

impl Message {
    pub(super) fn request(&self) -> Result<Request, Broken> {
        self.decode()
    }

    pub(super) fn reply(&self) -> Result<Reply, Broken> {
        self.decode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use futures_util::FutureExt;
    use onceflow_core::{Batch, Group, Name};
    use proptest::prelude::*;

    fn messages() -> Vec<Vec<u8>> {
        let key = Group::rows("group").key("name");
        let mut batch = Batch::new(Shard(1));
        batch.require_absent(key.clone()).put(key.clone(), Row::new("row")).add(key.clone(), 1, vec![]);
        let page = Page { rows: vec![(Name::new("n"), Row::new("row"))], more: true };
        let to = |answer| Reply::To { position: Position(300), answer };
        let error = FlatError::from(crate::Error::Full("disk".into()));
        let requests = [
            Request::Get { shard: Shard(0), keys: vec![key; 3] },
            Request::Scan { shard: Shard(9), scan: Scan::of(Group::rows("g"), 10).prefix("p") },
            Request::Commit(batch.into()),
            Request::Wait { shard: Shard(0), seen: Position(7), until: Timestamp::NEVER },
            Request::Cancel,
        ];
        let replies = [
            to(Ok(ReplyBody::Rows(vec![None, Some(Row::new("x"))]))),
            to(Ok(ReplyBody::Page(page))),
            to(Err(error)),
            Reply::Goodbye,
        ];
        let write = |message: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = Vec::new();
            message(&mut bytes);
            bytes
        };
        let mut all: Vec<_> =
            requests.iter().map(|it| write(&|out| frame::append(out, 1, it, 1000).unwrap())).collect();
        all.extend(replies.iter().map(|it| write(&|out| frame::append(out, 1, it, 1000).unwrap())));
        all
    }

    /// Reads bytes as a server and as a client would, to their end or the first error.
    fn read_all(bytes: &[u8]) -> usize {
        let mut read = 0;
        let mut reader = Reader::new(bytes, 1000);
        while let Ok(Some(frame)) = reader.next().now_or_never().expect("memory does not wait") {
            read += 1;
            if let Ok(Request::Commit(batch)) = frame.request() {
                drop(batch.into_batch());
            }
            drop(frame.reply());
        }
        read
    }

    #[test]
    fn every_message_can_be_read() {
        let all = messages();
        assert_eq!(read_all(&all.concat()), all.len());
        for bytes in all {
            let mut reader = Reader::new(bytes.as_slice(), 1000);
            let frame = reader.next().now_or_never().unwrap().unwrap().unwrap();
            assert!(frame.request().is_ok() || frame.reply().is_ok());
        }
    }

    #[test]
    fn a_deep_nest_of_triggers_ends_in_an_error_not_in_the_stack() {
        // Commit, shard 0, no requires, a million times "an Add whose trigger is one more".
        let add = [4, 0, 0, 0, 2, 1];
        let mut body = vec![2, 0, 0, 0xc0, 0x84, 0x3d];
        body.extend(add.iter().copied().cycle().take(6 * 1_000_000));
        body.push(0);
        let request = Message { call: 0, body: Bytes::from(body) }.request().expect("the list itself can be read");
        let Request::Commit(batch) = request else { panic!("{request:?}") };
        assert!(batch.into_batch().is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_are_refused_quietly(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            read_all(&bytes);
            drop(Message { call: 0, body: Bytes::from(bytes) }.request());
        }

        #[test]
        fn damaged_messages_are_refused_quietly(
            which in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
            cut in any::<prop::sample::Index>(),
        ) {
            let all = messages();
            let mut bytes = which.get(&all).clone();
            let place = at.index(bytes.len());
            bytes[place] = byte;
            read_all(&bytes);
            bytes.truncate(cut.index(bytes.len()));
            read_all(&bytes);
        }
    }
}
