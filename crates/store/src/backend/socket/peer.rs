//! Checks that the other side of a connection is the same user. Not even the superuser is let in: the store's owner
//! could not read the files that it writes.

use super::frame::Broken;
use tokio::net::UnixStream;

/// Refuses another user's process, on either side.
pub(super) fn check_same_user(stream: &UnixStream) -> Result<(), Broken> {
    same_user(stream.peer_cred()?.uid(), own_user()?)
}

/// Our own user id, read from a connection with ourselves.
fn own_user() -> std::io::Result<u32> {
    let (one, _other) = UnixStream::pair()?;
    Ok(one.peer_cred()?.uid())
}

fn same_user(theirs: u32, ours: u32) -> Result<(), Broken> {
    if theirs == ours { Ok(()) } else { Err(Broken::OtherUser { theirs, ours }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_user_is_refused_the_superuser_too() {
        assert!(same_user(1000, 1000).is_ok());
        for theirs in [0, 1001] {
            let refused = same_user(theirs, 1000).unwrap_err().to_string();
            assert!(refused.contains(&format!("user {theirs}, this as 1000")), "{refused}");
        }
    }
}
