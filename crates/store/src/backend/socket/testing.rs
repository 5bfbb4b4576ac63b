//! The messages as bytes, for a fuzzer: examples of all of them, and what a reader makes of bytes from anywhere.

use super::{
    frame::{self, Broken, Message, Reader},
    limits::REQUEST_BYTES_MAX,
    protocol::{Reply, ReplyBody, Request},
    wire::FlatError,
};
use crate::records::{CommitResult, Page, Position, Refused, Scan};
use bytes::Bytes;
use futures_util::FutureExt;
use onceflow_core::{Batch, Group, Key, Name, Row, Shard, Timestamp, batch::BatchLimits};
use serde::Serialize;

/// The frames and messages that a reader decoded from some bytes.
#[derive(Debug, Default)]
pub struct Heard {
    /// Frames that were whole.
    pub frames: usize,
    /// Those that a server understands.
    pub requests: usize,
    /// Those that a client understands.
    pub replies: usize,
    /// Why the connection would be closed.
    pub broken: Option<Broken>,
}

/// Reads bytes as a server and as a client do, to their end or to the first frame that is none.
///
/// # Panics
/// If a message that was understood would not be understood the same when it is sent on.
pub fn hear(bytes: &[u8]) -> Heard {
    let mut heard = Heard::default();
    let mut reader = Reader::new(bytes, REQUEST_BYTES_MAX);
    loop {
        match reader.next().now_or_never().expect("memory does not wait") {
            Ok(Some(frame)) => understand(&frame, &mut heard),
            Ok(None) => return heard,
            Err(broken) => {
                heard.broken = Some(broken);
                return heard;
            }
        }
    }
}

fn understand(frame: &Message, heard: &mut Heard) {
    heard.frames += 1;
    if let Ok(request) = frame.request() {
        heard.requests += 1;
        assert_eq!(again(&request).request().ok().as_ref(), Some(&request), "a request reads otherwise when sent on");
        if let Request::Commit(batch) = request
            && let Ok(batch) = batch.into_batch()
            && batch.check_within(BatchLimits::EMBEDDED).is_ok()
        {
            let sent = again(&Request::Commit(batch.clone().into())).request();
            let Ok(Request::Commit(read)) = sent else { panic!("a batch cannot be sent on: {sent:?}") };
            assert_eq!(read.into_batch().as_ref(), Ok(&batch), "a batch reads otherwise when sent on");
        }
    }
    if let Ok(reply) = frame.reply() {
        heard.replies += 1;
        assert_eq!(again(&reply).reply().ok().as_ref(), Some(&reply), "a reply reads otherwise when sent on");
    }
}

fn again(message: &impl Serialize) -> Message {
    Message { call: 0, body: body(message).into() }
}

fn body(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("messages can be written to memory")
}

/// A whole frame around a body.
///
/// # Panics
/// If the body is longer than a frame can be.
pub fn framed(call: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::append(&mut out, call, &(), REQUEST_BYTES_MAX).expect("an empty frame is short");
    out.extend_from_slice(body);
    let length = u32::try_from(out.len() - 4).expect("a frame is below 4 GiB");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out
}

/// The body of a request that commits this.
pub fn commit(batch: Batch) -> Vec<u8> {
    body(&Request::Commit(batch.into()))
}

/// A body of every other request.
pub fn requests() -> Vec<Vec<u8>> {
    let key = Group::rows("group").key("name");
    let wait = |until| Request::Wait { shard: Shard(0), seen: Position(0), until };
    let scan = Scan::of(Group::rows("g"), 10).prefix("p").after(Some(Name::new("pa")));
    let requests = [
        Request::Get { shard: Shard(0), keys: vec![key; 3] },
        Request::Scan { shard: Shard(9), scan },
        Request::Now,
        wait(Timestamp::NEVER),
        wait(Timestamp::ZERO),
        Request::Cancel,
    ];
    requests.iter().map(body).collect()
}

/// A body of every reply.
pub fn replies() -> Vec<Vec<u8>> {
    let key: Key = Group::queue("q").key("name");
    let to = |answer| Reply::To { position: Position(300), answer };
    let page = Page { rows: vec![(Name::new("n"), Row::new("row"))], more: true };
    let refused = Refused { which: 1, found: Some(Row::new("other")), position: Position(300) };
    let wrong = onceflow_core::batch::Invalid::NotAnInbox(key);
    let replies = [
        to(Ok(ReplyBody::Rows(vec![None, Some(Row::new("x"))]))),
        to(Ok(ReplyBody::Page(page))),
        to(Ok(ReplyBody::Committed(CommitResult::Refused(refused)))),
        to(Ok(ReplyBody::Now(Timestamp::ZERO))),
        to(Ok(ReplyBody::Woken)),
        to(Err(FlatError::from(crate::Error::Full("disk".into())))),
        to(Err(FlatError::from(crate::Error::from(wrong)))),
        Reply::Goodbye,
    ];
    replies.iter().map(body).collect()
}

/// The body of what a server says first.
pub fn welcome(welcome: &super::Welcome) -> Vec<u8> {
    body(welcome)
}

/// The bytes sent before the first frame.
pub fn greeting() -> Bytes {
    Bytes::copy_from_slice(&super::protocol::greeting())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_is_understood_by_the_side_it_is_for() {
        let all = |bodies: Vec<Vec<u8>>| bodies.iter().flat_map(|body| framed(7, body)).collect::<Vec<_>>();
        let mut batch = Batch::new(Shard(1));
        batch.add(Group::rows("n").key("n"), 1, vec![]);
        let mut asked = requests();
        asked.push(commit(batch));
        let heard = hear(&all(asked.clone()));
        assert_eq!((heard.frames, heard.requests), (asked.len(), asked.len()));
        let heard = hear(&all(replies()));
        assert_eq!((heard.frames, heard.replies), (replies().len(), replies().len()));
        assert!(hear(&framed(1, &[99])).broken.is_none() && hear(&[1, 2]).broken.is_some());
    }
}
