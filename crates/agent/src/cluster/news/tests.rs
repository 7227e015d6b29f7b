use super::*;
use crate::cluster::config;
use std::future::ready;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};

/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// What the server makes of a request.
enum Reply {
    /// The connection stays open.
    Silence,
    Json(u16, &'static str),
}

const EMPTY: Reply = Reply::Json(200, r#"{"metadata": {"resourceVersion": "7"}, "items": []}"#);
const FORGOTTEN: Reply = Reply::Json(
    410,
    r#"{"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": "Expired", "code": 410}"#,
);

/// A client of a server that answers the first requests for Services so, and no further ones; and the targets of the requests.
async fn server(replies: impl IntoIterator<Item = Reply>) -> (Client, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut replies: Vec<Reply> = replies.into_iter().collect();
    replies.reverse();
    let (asked, targets) = channel();
    std::thread::spawn(move || {
        // Each connection carries one request; open ones stay so until the test ends.
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            let target = target(&stream);
            if target.starts_with("/api/v1/services") {
                // A test that has failed listens no more.
                let _ = asked.send(target);
                answer(&stream, &replies.pop().unwrap_or(Reply::Silence));
            }
            open.push(stream);
        }
    });
    let place = tempfile::tempdir().unwrap();
    let kubeconfig = place.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut config = config(Some(&kubeconfig)).await.unwrap();
    // Whoever waits for ever goes on to do so.
    config.read_timeout = config.read_timeout.map(|_| PATIENCE);
    (Client::try_from(config).unwrap(), targets)
}

/// Of the request, whose head is read.
fn target(stream: &TcpStream) -> String {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let first = lines.next().unwrap_or_default();
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    first.split(' ').nth(1).unwrap_or_default().into()
}

fn answer(mut stream: &TcpStream, reply: &Reply) {
    let Reply::Json(code, body) = reply else { return };
    let length = body.len();
    let head = "Content-Type: application/json\r\nConnection: close";
    let text = format!("HTTP/1.1 {code} Any\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    // The client may have given up.
    let _ = stream.write_all(text.as_bytes());
}

/// The steps of Services until a list is complete for the `lists`th time.
async fn until_listed(client: &Client, lists: usize) -> Vec<Step> {
    let followed =
        Followed { node: "node", zone: false, services: true, pods: None, namespaces: false, network_policies: false };
    let service = |news| if let News::Service(step) = news { Some(step) } else { None };
    let mut services = pin!(follow(client, followed).filter_map(|news| ready(service(news))));
    let (mut steps, mut listed) = (Vec::new(), 0);
    let all = async {
        while listed < lists {
            let step = services.next().await.expect("the stream has no end");
            listed += usize::from(matches!(step, Step::End));
            steps.push(step);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all).await.expect("the server is asked again");
    steps
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

#[test]
fn a_server_that_never_answers_is_asked_again() {
    block_on(async {
        let (client, targets) = server([Reply::Silence, EMPTY]).await;
        let steps = until_listed(&client, 1).await;
        assert!(matches!(&steps[..], [Step::Begin, Step::Failed(_), Step::Begin, Step::End]));
        assert!(targets.try_iter().take(2).all(|target| !target.contains("watch=")));
    });
}

/// The version in the request would be as old each time.
#[test]
fn a_watch_of_a_forgotten_version_begins_with_a_list() {
    block_on(async {
        let (client, targets) = server([EMPTY, FORGOTTEN, EMPTY]).await;
        let steps = until_listed(&client, 2).await;
        assert!(matches!(&steps[..], [Step::Begin, Step::End, Step::Failed(_), Step::Begin, Step::End]));
        let is_watch: Vec<bool> = targets.try_iter().take(3).map(|target| target.contains("watch=")).collect();
        assert_eq!(is_watch, [false, true, false]);
    });
}
