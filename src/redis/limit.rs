//! A limit on the size of replies: an endless reply must not fill this machine's memory.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes that are read between two requests. Pages of locks are cut so that they take half of it, and what does not
/// fit is asked for again; a subscription that reaches the limit is opened again.
pub(crate) const MOST: usize = 4 << 20;
/// The memory of a value apart from its text, in bytes. Each value ends at least one line.
const VALUE: usize = 64;

/// A stream that fails with [`ErrorKind::FileTooLarge`] once the server has sent more than [`MOST`].
pub(super) struct ReplyLimit<S> {
    stream: S,
    left: usize,
}

impl<S> ReplyLimit<S> {
    pub(super) fn new(stream: S) -> ReplyLimit<S> {
        ReplyLimit { stream, left: MOST }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplyLimit<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        let new = &buffer.filled()[before..];
        let lines = new.iter().filter(|byte| **byte == b'\n').count();
        let left = self.left.checked_sub(new.len() + lines * VALUE);
        self.left = left.ok_or(ErrorKind::FileTooLarge)?;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplyLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.left = MOST;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
