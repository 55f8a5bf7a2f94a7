//! The stream of bytes from and to a server. It copes with an endless reply, and with a server that sends an error
//! unasked and then closes the connection.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most memory for all replies between two requests, in bytes, because an endless reply must not fill this
/// machine's memory. A page of locks is sized for half of it. If answers about locks do not fit, redlock asks about
/// these locks again; if a subscription reaches the limit, redlock opens it again.
const LONGEST_REPLY: usize = 4 << 20;
/// The memory that a value needs besides its text, in bytes. The stream counts lines, not values: a value has at least
/// one line.
const VALUE: usize = 64;

/// Fails with [`ErrorKind::FileTooLarge`] once the replies since the last request take up more than [`LONGEST_REPLY`].
///
/// A server that has too many clients, or is in protected mode, sends an error unasked, and closes the connection. That
/// error becomes the answer to the first request: the stream reads nothing before the request is written, and a write
/// to a closed connection counts as a success, so that the error is read.
pub(super) struct ServerStream {
    socket: Box<dyn Socket>,
    /// A copy of the descriptor of a TCP socket; none for a Unix socket, or if no descriptor was free.
    pub(super) descriptor: Option<OwnedFd>,
    left: usize,
    is_asked: bool,
    /// The reader that waits for the first request.
    reader: Option<Waker>,
}

pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

impl ServerStream {
    pub(super) fn new(socket: impl Socket + 'static, descriptor: Option<OwnedFd>) -> ServerStream {
        ServerStream { socket: Box::new(socket), descriptor, left: LONGEST_REPLY, is_asked: false, reader: None }
    }
}

impl AsyncRead for ServerStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.is_asked {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.socket).poll_read(cx, buffer))?;
        let new = &buffer.filled()[before..];
        let lines = new.iter().filter(|byte| **byte == b'\n').count();
        let left = self.left.checked_sub(new.len() + lines * VALUE);
        self.left = left.ok_or(ErrorKind::FileTooLarge)?;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ServerStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.left = LONGEST_REPLY;
        self.is_asked = true;
        self.reader.take().into_iter().for_each(Waker::wake);
        match Pin::new(&mut self.socket).poll_write(cx, bytes) {
            // A closed connection is no error here: the reader first gets the server's error, and then finds the end.
            Poll::Ready(Err(error)) if is_end(&error) => Poll::Ready(Ok(bytes.len())),
            written => written,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(Err(error)) if is_end(&error) => Poll::Ready(Ok(())),
            flushed => flushed,
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// True if the other side has closed the connection.
fn is_end(error: &io::Error) -> bool {
    use ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset | ConnectionAborted)
}
