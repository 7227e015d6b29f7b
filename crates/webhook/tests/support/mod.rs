//! The program, an authority that issues certificates, and a client that trusts one.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;
use tempfile::TempDir;

/// No wait takes longer.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// As the API server calls it.
const NAME: &str = "sidestep-webhook.sidestep.svc";

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Authority(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// A certificate and its key, as PEM.
    pub fn issue(&self) -> (String, String) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new([NAME.to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        (certificate.pem(), key.serialize_pem())
    }

    fn trusted(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from(self.0.der().to_vec())).expect("a root");
        let builder = ClientConfig::builder_with_provider(default_provider().into());
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        builder.with_root_certificates(roots).with_no_client_auth()
    }
}

pub struct Webhook {
    pub address: SocketAddr,
    metrics: SocketAddr,
    directory: TempDir,
    process: Child,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Webhook {
    pub fn start(authority: &Authority) -> Webhook {
        let directory = tempfile::tempdir().expect("a directory");
        let (certificate, key) = authority.issue();
        write(&directory, &certificate, &key);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-webhook"));
        command.args(["--assume-library", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--certificate"]);
        let mut process = command.arg(directory.path()).stderr(Stdio::piped()).spawn().expect("the webhook starts");
        let stderr = process.stderr.take().expect("its stderr");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let address_after = |text: &str| loop {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no line with {text}"));
            if let Some((_, rest)) = line.split_once(text) {
                break rest.trim_end_matches("/metrics").parse().expect("an address");
            }
        };
        let metrics = address_after("http://");
        let address = address_after("https://");
        Webhook { address, metrics, directory, process }
    }

    pub fn replace_certificate(&self, certificate: &str, key: &str) {
        write(&self.directory, certificate, key);
    }

    /// The answer to a request, as somebody hears it who trusts this authority.
    pub fn ask(&self, authority: &Authority, request: &str) -> io::Result<String> {
        let name = ServerName::try_from(NAME).expect("a name");
        let client = ClientConnection::new(Arc::new(authority.trusted()), name).expect("a client");
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut stream = StreamOwned::new(client, stream);
        // A server that refuses a large body does not read it to its end.
        let sent = stream.write_all(request.as_bytes()).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Err(error) if answer.is_empty() => Err(error),
            _ if answer.is_empty() => sent.and(Err(io::ErrorKind::UnexpectedEof.into())),
            _ => Ok(String::from_utf8(answer).expect("text")),
        }
    }

    pub fn metrics(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.metrics).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    }
}

/// As the kubelet does it: the files get new content at once.
fn write(directory: &TempDir, certificate: &str, key: &str) {
    for (name, content) in [("tls.crt", certificate), ("tls.key", key)] {
        let new = directory.path().join(".new");
        std::fs::write(&new, content)
            .and_then(|()| std::fs::rename(&new, directory.path().join(name)))
            .expect("written");
    }
}

pub fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

pub fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

pub fn body_of(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").map_or("", |(_, body)| body)
}
