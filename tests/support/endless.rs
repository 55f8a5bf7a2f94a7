//! A server that only pretends to be Redis: the test makes the answers, which may be wrong or endless.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A listener on 127.0.0.1, which ends when the `Endless` is dropped.
#[derive(Debug)]
pub(crate) struct Endless {
    port: u16,
    ended: Arc<AtomicBool>,
}

impl Endless {
    /// A server that answers the first packet of each connection with `start`, and then sends `rest` over and over.
    pub(crate) fn start(start: &str, rest: &str) -> Endless {
        let (start, rest) = (start.to_owned(), rest.repeat(60_000 / rest.len()));
        Endless::serve(move |mut client, _, ended| {
            let mut request = [0; 4096];
            let mut sent = client.read(&mut request).map(drop).and_then(|()| client.write_all(start.as_bytes()));
            while sent.is_ok() && !ended.load(Ordering::SeqCst) {
                sent = client.write_all(rest.as_bytes());
            }
        })
    }

    /// A server that answers packet number n, counted from 0 over all connections, with `answer(n)`.
    pub(crate) fn answering(answer: impl Fn(u64) -> Vec<u8> + Send + Sync + 'static) -> Endless {
        let number = AtomicU64::new(0);
        Endless::serve(move |mut client, _, _| {
            let mut request = [0; 4096];
            while let Ok(1..) = client.read(&mut request) {
                if client.write_all(&answer(number.fetch_add(1, Ordering::SeqCst))).is_err() {
                    return;
                }
            }
        })
    }

    /// Calls `client` in a new thread for each connection, with the connection's number, and with a flag that becomes
    /// true when the `Endless` is dropped.
    pub(crate) fn serve(client: impl Fn(TcpStream, u64, &AtomicBool) + Send + Sync + 'static) -> Endless {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (ended, client) = (Arc::new(AtomicBool::new(false)), Arc::new(client));
        let until = Arc::clone(&ended);
        std::thread::spawn(move || {
            for (stream, number) in listener.incoming().flatten().zip(0..) {
                if until.load(Ordering::SeqCst) {
                    return;
                }
                let (client, until) = (Arc::clone(&client), Arc::clone(&until));
                std::thread::spawn(move || client(stream, number, &until));
            }
        });
        Endless { port, ended }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
        // A new connection wakes the thread that listens, and the thread ends.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
