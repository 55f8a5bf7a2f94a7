//! What a server says before it closes a connection: that it has too many clients, or is in protected mode. It says so unasked, and
//! then takes no request.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream whose last words are the answer to the first request: nothing is read before that, and a request that the other side
/// does not take any more does not end the stream before its words are read.
pub(super) struct LastWords<S> {
    stream: S,
    is_asked: bool,
    /// The reader that waits for the first request.
    reader: Option<Waker>,
}

impl<S> LastWords<S> {
    pub(super) fn new(stream: S) -> LastWords<S> {
        LastWords { stream, is_asked: false, reader: None }
    }

    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LastWords<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LastWords<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.is_asked = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            // The reader meets the end too, behind the words.
            Poll::Ready(Err(error)) if is_end(&error) => Poll::Ready(Ok(bytes.len())),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(error)) if is_end(&error) => Poll::Ready(Ok(())),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// True if the other side has closed the connection.
fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}
