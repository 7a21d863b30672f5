// server-tokio --mode MODE [--tls CERTIFICATE KEY] [--tickets N]
//
// One task per connection with buffered readers and writers, as in the documentation of tokio and tokio-rustls.

use std::error::Error;
use std::io::{Error as IoError, ErrorKind, Result};
use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{version::TLS13, ServerConfig};
use tokio_rustls::TlsAcceptor;

const BUFFER_SIZE: usize = 16_384;
const PATTERN_PERIOD: u64 = 251;

trait Connection: AsyncRead + AsyncWrite + Unpin {}
impl<Stream: AsyncRead + AsyncWrite + Unpin> Connection for Stream {}

#[derive(Clone)]
struct Server {
    mode: String,
    tls: Option<TlsAcceptor>,
}

/// Uses a current-thread runtime on one processor, and otherwise a worker for each processor.
fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut builder = match std::thread::available_parallelism()?.get() {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    builder.enable_all().build()?.block_on(run())
}

async fn run() -> std::result::Result<(), Box<dyn Error>> {
    let mut server = Server { mode: String::new(), tls: None };
    let mut identity = None;
    let mut tickets = 0;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} requires another value"));
        match argument.as_str() {
            "--mode" => server.mode = value()?,
            "--tls" => identity = Some((value()?, value()?)),
            "--tickets" => tickets = value()?.parse()?,
            _ => return Err(format!("unknown argument {argument}").into()),
        }
    }
    if let Some((certificate, key)) = identity {
        server.tls = Some(acceptor(&certificate, &key, tickets)?);
    }
    if server.mode == "udp-echo" {
        return Ok(echo_datagrams().await?);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        match listener.accept().await {
            Ok((connection, _)) => {
                let server = server.clone();
                tokio::spawn(async move { report(server.accept(connection).await) });
            }
            Err(error) => eprintln!("{error}"),
        }
    }
}

/// TLS 1.3 with TLS_AES_128_GCM_SHA256 and X25519.
fn acceptor(certificate: &str, key: &str, tickets: usize) -> std::result::Result<TlsAcceptor, Box<dyn Error>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let chain = CertificateDer::pem_file_iter(certificate)?.collect::<std::result::Result<_, _>>()?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(key)?)?;
    config.send_tls13_tickets = tickets;
    config.ticketer = aws_lc_rs::Ticketer::new()?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn report(result: Result<()>) {
    match result {
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => eprintln!("{error}"),
        _ => {}
    }
}

impl Server {
    async fn accept(self, connection: TcpStream) -> Result<()> {
        connection.set_nodelay(true)?;
        match &self.tls {
            Some(tls) if self.mode == "starttls" => start_tls(tls, connection).await,
            Some(tls) => self.serve(tls.accept(connection).await?).await,
            None => self.serve(connection).await,
        }
    }

    async fn serve(&self, connection: impl Connection) -> Result<()> {
        match self.mode.as_str() {
            "echo" => echo(connection).await,
            "lines" => reply_to_lines(connection, false).await,
            "count" => reply_to_lines(connection, true).await,
            "receive" => receive(connection).await,
            "source" => send(connection).await,
            mode => Err(IoError::other(format!("unknown mode {mode}"))),
        }
    }
}

async fn echo(mut connection: impl Connection) -> Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let count = connection.read(&mut buffer).await?;
        if count == 0 {
            return connection.shutdown().await;
        }
        connection.write_all(&buffer[..count]).await?;
        connection.flush().await?;
    }
}

/// Buffers reading and writing, as `tokio::io::BufStream` does.
fn buffered<Stream: Connection>(connection: Stream) -> BufReader<BufWriter<Stream>> {
    BufReader::with_capacity(BUFFER_SIZE, BufWriter::with_capacity(BUFFER_SIZE, connection))
}

/// Writes the reply to each line, and flushes when no more input is buffered.
async fn reply_to_lines(connection: impl Connection, counts: bool) -> Result<()> {
    let mut connection = buffered(connection);
    let mut line = Vec::new();
    loop {
        line.clear();
        if connection.read_until(b'\n', &mut line).await? == 0 {
            return connection.shutdown().await;
        }
        if counts {
            connection.write_u64_le(line.len() as u64).await?;
        } else {
            connection.write_all(&line).await?;
        }
        if connection.buffer().is_empty() {
            connection.flush().await?;
        }
    }
}

/// The byte at a position of a stream: see pattern.h.
fn pattern_byte(position: u64) -> u8 {
    match (position % PATTERN_PERIOD) as u8 {
        b'\n' => 251,
        value => value,
    }
}

async fn receive(mut connection: impl Connection) -> Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let expected = connection.read_u64_le().await?;
        let (mut position, mut correct) = (0, 0);
        while position < expected {
            let room = buffer.len().min((expected - position) as usize);
            let count = connection.read(&mut buffer[..room]).await?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let end = position + count as u64;
            if buffer[0] == pattern_byte(position) && buffer[count - 1] == pattern_byte(end - 1) {
                correct += count as u64;
            }
            position = end;
        }
        connection.write_u64_le(correct).await?;
        connection.flush().await?;
    }
}

async fn send(connection: impl Connection) -> Result<()> {
    let mut connection = buffered(connection);
    let mut pattern = Vec::new();
    loop {
        let total = connection.read_u64_le().await?;
        let size = connection.read_u64_le().await?;
        if size == 0 {
            return connection.shutdown().await;
        }
        pattern.extend((pattern.len() as u64..size + PATTERN_PERIOD).map(pattern_byte));
        let mut position = 0;
        while position < total {
            let count = size.min(total - position);
            let start = (position % PATTERN_PERIOD) as usize;
            connection.write_all(&pattern[start..start + count as usize]).await?;
            position += count;
        }
        connection.flush().await?;
    }
}

async fn start_tls(tls: &TlsAcceptor, connection: TcpStream) -> Result<()> {
    // The client sends its next bytes after the reply, so the discarded buffer is empty.
    let mut reader = BufReader::new(connection);
    let mut line = String::new();
    reader.read_line(&mut line).await?;
    let mut connection = reader.into_inner();
    connection.write_all(b"220 go ahead\r\n").await?;
    echo(tls.accept(connection).await?).await
}

async fn echo_datagrams() -> Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    println!("{}", socket.local_addr()?.port());
    let mut buffer = vec![0; 65_536];
    loop {
        let (count, sender) = socket.recv_from(&mut buffer).await?;
        socket.send_to(&buffer[..count], sender).await?;
    }
}
