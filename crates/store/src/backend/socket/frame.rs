//! Bytes to frames: a length, a call's number, a body. A length is believed only as far as bytes have
//! arrived: memory is taken for what was sent, never for what was announced.

use bytes::{Buf, Bytes, BytesMut};
use serde::{Serialize, de::DeserializeOwned};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Why a connection is closed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Broken {
    /// The system says so.
    #[error("{0}")]
    Io(Arc<std::io::Error>),
    /// The connection ended inside a frame.
    #[error("the connection ended in the middle of a frame")]
    Truncated,
    /// A frame over the limit.
    #[error("a frame of {bytes} bytes is over the limit of {limit}")]
    TooLong {
        /// The announced length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// A frame that is no message.
    #[error("a frame that is no message: {0}")]
    Garbage(Arc<str>),
    /// Something else than a onceflow store.
    #[error("the other side does not speak onceflow's protocol")]
    Stranger,
    /// Another version of this program.
    #[error("the other side speaks protocol {theirs}, this is {ours}; use the same version of onceflow on both")]
    Version {
        /// The version of the other side.
        theirs: u32,
        /// Our version.
        ours: u32,
    },
    /// Another user.
    #[error("the other side runs as user {theirs}, this as {ours}; a store is shared by one user's processes only")]
    OtherUser {
        /// The user on the other side.
        theirs: u32,
        /// Our user.
        ours: u32,
    },
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Self {
        Broken::Io(Arc::new(error))
    }
}

const LENGTH_BYTES: usize = 4;
const CALL_BYTES: usize = 8;

/// Space that is asked for when the buffer is full.
const READ_BYTES: usize = 64 << 10;

/// One message: which call it belongs to, and what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) call: u64,
    pub(super) body: Bytes,
}

impl Message {
    /// Reads the body. Bytes that are left over are garbage too: both sides agree on every byte.
    pub(super) fn decode<T: DeserializeOwned>(&self) -> Result<T, Broken> {
        let garbage = |error: postcard::Error| Broken::Garbage(error.to_string().into());
        match postcard::take_from_bytes(&self.body).map_err(garbage)? {
            (message, []) => Ok(message),
            (_, rest) => Err(Broken::Garbage(format!("{} bytes too many", rest.len()).into())),
        }
    }
}

/// Appends a frame to `out`. The call's number can be set later, see [`set_call`].
/// Answers the body's length when that is over the limit, and appends nothing.
pub(super) fn append(out: &mut Vec<u8>, call: u64, body: &impl Serialize, limit: usize) -> Result<(), usize> {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.extend_from_slice(&call.to_le_bytes());
    *out = postcard::to_extend(body, std::mem::take(out)).expect("messages can be written to memory");
    let length = out.len() - start - LENGTH_BYTES;
    if length > limit {
        out.truncate(start);
        return Err(length);
    }
    let length = u32::try_from(length).expect("limits of frames are below 4 GiB");
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    Ok(())
}

/// Sets the call of the frame at the start of `frame`.
pub(super) fn set_call(frame: &mut [u8], call: u64) {
    frame[LENGTH_BYTES..LENGTH_BYTES + CALL_BYTES].copy_from_slice(&call.to_le_bytes());
}

/// Reads frames.
pub(super) struct Reader<R> {
    from: R,
    buffer: BytesMut,
    limit: usize,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(from: R, limit: usize) -> Self {
        Reader { from, buffer: BytesMut::new(), limit }
    }

    /// The next frame, or `None` at the end. May be dropped and called again; nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<Message>, Broken> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            self.buffer.reserve(READ_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(Broken::Truncated) };
            }
        }
    }

    /// Reads exactly so many bytes that are no frame.
    pub(super) async fn exactly<const N: usize>(&mut self) -> Result<[u8; N], Broken> {
        while self.buffer.len() < N {
            self.buffer.reserve(READ_BYTES);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return Err(Broken::Truncated);
            }
        }
        let mut bytes = [0; N];
        self.buffer.copy_to_slice(&mut bytes);
        Ok(bytes)
    }

    fn take(&mut self) -> Result<Option<Message>, Broken> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_BYTES>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > self.limit {
            return Err(Broken::TooLong { bytes: length, limit: self.limit });
        }
        if length < CALL_BYTES {
            return Err(Broken::Garbage("it is too short to name a call".into()));
        }
        if self.buffer.len() < LENGTH_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(LENGTH_BYTES);
        let mut frame = self.buffer.split_to(length);
        let call = frame.get_u64_le();
        Ok(Some(Message { call, body: frame.freeze() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn frames(mut bytes: &[u8], limit: usize) -> (Vec<Message>, Option<Broken>) {
        let mut reader = Reader::new(&mut bytes, limit);
        let mut frames = Vec::new();
        loop {
            match reader.next().now_or_never().expect("memory does not wait") {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return (frames, None),
                Err(broken) => return (frames, Some(broken)),
            }
        }
    }

    #[test]
    fn frames_come_out_as_they_went_in_and_a_cut_is_noticed_anywhere_but_between_them() {
        let mut bytes = Vec::new();
        let mut borders = vec![0];
        for call in 0..5u64 {
            append(&mut bytes, call, &vec![7u8; call as usize * 3], 1000).unwrap();
            borders.push(bytes.len());
        }
        for cut in 0..=bytes.len() {
            let (frames, broken) = frames(&bytes[..cut], 1000);
            assert_eq!(frames.len(), borders.iter().filter(|border| **border <= cut).count() - 1);
            assert_eq!(broken.is_none(), borders.contains(&cut), "cut at {cut}: {broken:?}");
            for (at, frame) in frames.iter().enumerate() {
                assert_eq!(frame.call, at as u64);
                assert_eq!(frame.decode::<Vec<u8>>().unwrap(), vec![7; at * 3]);
            }
        }
    }

    #[test]
    fn a_frame_over_the_limit_is_neither_sent_nor_awaited() {
        let mut bytes = vec![1, 2, 3];
        assert_eq!(append(&mut bytes, 0, &vec![0u8; 100], 50), Err(109));
        assert_eq!(bytes, [1, 2, 3]);
        let (_, broken) = frames(&[255, 255, 255, 255, 0, 0], 50);
        assert!(matches!(broken, Some(Broken::TooLong { bytes: 0xffff_ffff, limit: 50 })));
        let (_, broken) = frames(&[3, 0, 0, 0, 0, 0, 0], 50);
        assert!(matches!(broken, Some(Broken::Garbage(_))));
    }

    #[test]
    fn a_call_can_be_named_late() {
        let mut bytes = Vec::new();
        append(&mut bytes, 0, &5u8, 50).unwrap();
        set_call(&mut bytes, 77);
        assert_eq!(frames(&bytes, 50).0[0].call, 77);
    }
}
