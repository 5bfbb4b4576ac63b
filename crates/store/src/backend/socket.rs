//! A store served to other processes of the same user over a Unix socket.
//!
//! One connection carries many calls at once: requests are executed in the order they arrive, a reply is sent when the
//! state it was decided on is durable, and many replies are sent in one write. Every reply to a guest is therefore as
//! durable as what the owner's own [`durable`](crate::Records::durable) has confirmed.
//!
//! | module | what it owns |
//! |---|---|
//! | `frame` | bytes to frames: lengths that are not trusted |
//! | `protocol` | the messages, and the greeting before them |
//! | `wire` | batches and errors in a form that is safe to decode |
//! | `guests` | the observer that is told when a guest came, committed and left |
//! | `peer` | whether the other side is the same user |
//! | `server` | [`serve`]: any [`Records`](crate::Records) on a listener |
//! | `connection` | one guest, on the server's side: executed in order, answered when durable |
//! | `client` | [`Socket`]: the same port on the other side |
//! | `calls` | its calls that are under way, and their answers when the connection is lost |
//! | `testing` | with that feature: the messages as bytes |

mod calls;
mod client;
mod connection;
mod frame;
mod guests;
mod peer;
mod protocol;
mod server;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;

pub use client::{ConnectError, Socket};
pub use frame::Broken;
pub use guests::Guests;
pub use protocol::{Hello, VERSION, Welcome};
pub use server::{ServerHandle, serve, serve_guests};

/// Every bound of the socket, with its reason.
pub mod limits {
    use onceflow_core::limits::{BATCH_BYTES_MAX, BATCH_NAME_BYTES_MAX};

    /// Bytes of one request: the rows of the largest batch, its keys with what else each operation takes, and twice the
    /// rows for those its requires compare with. Nothing is allocated by this number; buffers grow with the bytes that
    /// arrive.
    pub const REQUEST_BYTES_MAX: usize = 3 * BATCH_BYTES_MAX + 2 * BATCH_NAME_BYTES_MAX;

    /// Bytes of one reply: a `get` answers all its rows at one moment, so they cannot be sent in parts. Pages and
    /// claims are cut long before.
    pub const REPLY_BYTES_MAX: usize = 16 * BATCH_BYTES_MAX;

    /// Bytes of rows in a page or beside a claim: the caller fetches further rows with the next `scan`.
    pub const PAGE_BYTES_MAX: usize = BATCH_BYTES_MAX;

    /// Bytes that a client holds before it has sent them; further calls wait.
    pub const OUTBOX_BYTES_MAX: usize = 1 << 20;

    /// Replies of one connection that wait for durability or for the guest to read; then no further request is read.
    /// One sync of a journal serves a few thousand.
    pub const REPLIES_MAX: usize = 4096;

    /// Bytes of replies that are gathered for one write.
    pub const WRITE_BYTES_MAX: usize = 256 << 10;

    /// `wait`s of one connection at a time: every worker of a process has one.
    pub const WAITS_MAX: usize = 1 << 14;

    /// Connections at a time. A process needs one; a process that connects when all are taken waits in the system's
    /// queue.
    pub const CONNECTIONS_MAX: usize = 512;

    /// Claims in one part of a greeting; there are as many parts as needed.
    pub const HELLO_CLAIMS_MAX: usize = 1000;

    /// Claims that one process may hold: far more than it can have at work, and a bound on the size of a greeting.
    pub const CLAIMS_MAX: usize = 1 << 20;

    /// How long a new connection may take to send its greeting.
    pub const GREETING_MS_MAX: u64 = 10_000;

    /// How long a server that stops waits for guests to read their last replies.
    pub const STOP_MS_MAX: u64 = 1_000;

    /// How long to wait when the system refuses a connection, for want of descriptors for example.
    pub const ACCEPT_RETRY_MS: u64 = 50;
}
