//! Messages between redlock's own processes; each arrives whole or not at all.

use super::uninterrupted;
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, MsgFlags, Shutdown, SockFlag, SockType, recv, send, shutdown, socketpair};
use serde::{Serialize, de::DeserializeOwned};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// One end of a connected pair of sockets. An exec closes this end.
#[derive(Debug)]
pub(crate) struct Packets(OwnedFd);

#[derive(Debug)]
pub(crate) enum Packet<T> {
    Message(T),
    Nothing,
    /// The other end is closed or has hung up, and all its messages have been read.
    End,
}

impl<T> Packet<T> {
    /// None if nothing has come yet, `Some(None)` at the end of all messages.
    pub(crate) fn arrived(self) -> Option<Option<T>> {
        match self {
            Packet::Message(message) => Some(Some(message)),
            Packet::Nothing => None,
            Packet::End => Some(None),
        }
    }
}

impl Packets {
    /// Two connected ends; each notices when the other is closed.
    pub(crate) fn pair() -> nix::Result<(Packets, Packets)> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        Ok((Packets(one), Packets(other)))
    }

    /// Sends without ever waiting; fails if the other end is closed, or has left too much unread.
    pub(crate) fn send<T: Serialize>(&self, message: &T) -> io::Result<()> {
        let bytes = serde_json::to_vec(message)?;
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        uninterrupted(|| send(self.0.as_raw_fd(), &bytes, flags))?;
        Ok(())
    }

    /// Closes this end for sending: the other end reads [`Packet::End`], even if another process has a copy.
    pub(crate) fn hang_up(&self) {
        let _ = shutdown(self.0.as_raw_fd(), Shutdown::Write);
    }

    /// In a forked child, closes the child's copy of the parent's end, so that the parent's death can be seen. The
    /// child must not use the copy afterwards.
    pub(crate) fn close_copy(&self) {
        // SAFETY: the owner is another process; here the descriptor is not used again, nor dropped.
        unsafe { libc::close(self.0.as_raw_fd()) };
    }

    /// Reads the next message without waiting. A garbled message counts as [`Packet::End`].
    pub(crate) fn receive<T: DeserializeOwned>(&self) -> Packet<T> {
        let look = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC;
        let length = loop {
            match uninterrupted(|| recv(self.0.as_raw_fd(), &mut [], look)) {
                Err(Errno::EAGAIN) => return Packet::Nothing,
                // The other end was closed before it had read all messages. The kernel reports this once; what the
                // other end has sent can still be read.
                Err(Errno::ECONNRESET) => {}
                Ok(0) | Err(_) => return Packet::End,
                Ok(length) => break length,
            }
        };
        let mut bytes = vec![0; length];
        match uninterrupted(|| recv(self.0.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT)) {
            Ok(length) => serde_json::from_slice(&bytes[..length]).map_or(Packet::End, Packet::Message),
            Err(_) => Packet::End,
        }
    }
}

impl AsFd for Packets {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::{Packet, Packets};

    #[test]
    fn what_the_other_end_left_unread_hides_nothing_that_it_sent() {
        let (one, other) = Packets::pair().unwrap();
        one.send(&"never read").unwrap();
        other.send(&"last words").unwrap();
        drop(other);
        assert!(matches!(
            one.receive::<String>(),
            Packet::Message(text) if text == "last words"
        ));
        assert!(matches!(one.receive::<String>(), Packet::End));
    }

    #[test]
    fn a_message_arrives_whole_and_before_the_end() {
        let (one, other) = Packets::pair().unwrap();
        assert!(matches!(other.receive::<String>(), Packet::Nothing));
        let long = "x".repeat(60_000);
        one.send(&long).unwrap();
        one.send(&"short").unwrap();
        drop(one);
        assert!(matches!(other.receive::<String>(), Packet::Message(text) if text == long));
        assert!(matches!(other.receive::<String>(), Packet::Message(text) if text == "short"));
        assert!(matches!(other.receive::<String>(), Packet::End));
        assert!(other.send(&"late").is_err());
    }
}
