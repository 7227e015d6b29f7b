//! What is served over HTTP.

use super::{probes, text};
use crate::heard::Heard;
use crate::message::QueryHandle;
use crate::signals::IsLoading;
use sidestep_agent_api::{Answer as Found, Question, Refusal};
use sidestep_http::{Answer, Page, apart};

/// What is served of.
#[derive(Clone)]
pub struct Agent {
    pub queries: QueryHandle,
    pub is_loading: IsLoading,
    pub heard: Heard,
}

impl Agent {
    pub async fn answer(self, page: Page) -> Answer {
        match page {
            Page::Alive => probes::alive(&self.queries, &self.is_loading).await,
            Page::Ready => probes::ready(&self.queries).await,
            Page::Metrics => apart(move || self.metrics()).await,
        }
    }

    fn metrics(self) -> Answer {
        match self.queries.ask(Question::Metrics) {
            Ok(Found::Metrics(metrics)) => Answer::metrics(text(*metrics, &self.heard)),
            Ok(_) => Answer::unavailable("the agent answers something else"),
            Err(Refusal(why)) => Answer::unavailable(why),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::Health;
    use crate::message::Message;
    use sidestep_http::Server;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn serve(agent: Agent) -> SocketAddr {
        let server = Server::bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = server.address().unwrap();
        std::thread::spawn(move || server.run(move |page| agent.clone().answer(page)));
        address
    }

    fn send(to: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        stream
    }

    fn read(mut stream: TcpStream) -> String {
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn status(text: &str) -> &str {
        text.split(' ').nth(1).unwrap_or("closed")
    }

    #[test]
    fn each_page_has_its_answer() {
        let (inbox, asked) = channel();
        let (queries, is_loading, heard) = (QueryHandle::new(inbox), IsLoading::default(), Heard::new());
        let at = serve(Agent { queries, is_loading, heard });
        std::thread::spawn(move || {
            for message in asked {
                match message {
                    Message::Asked(_, reply) => reply.send(Err(Refusal("not now".into()))).unwrap(),
                    Message::Probed(reply) => {
                        let readiness = [("a", true), ("b", true), ("c", false), ("d", true)];
                        let _ = reply.send(Health { captures_silent: Duration::ZERO, readiness });
                    }
                    _ => {}
                }
            }
        });
        let [metrics, alive, ready] = ["/metrics", "/healthz", "/readyz"].map(|path| read(send(at, path)));
        assert_eq!([&metrics, &alive, &ready].map(|text| status(text)), ["503", "200", "503"]);
        assert!(metrics.ends_with("not now"), "{metrics}");
        assert!(ready.ends_with("[+] a\n[+] b\n[-] c\n[+] d\n"), "{ready}");
    }

    #[test]
    fn a_main_thread_that_hangs_is_neither_alive_nor_ready() {
        let (inbox, _never_read) = channel();
        let (queries, is_loading, heard) = (QueryHandle::new(inbox), IsLoading::default(), Heard::new());
        let at = serve(Agent { queries, is_loading: is_loading.clone(), heard });
        let both = ["/healthz", "/readyz"].map(|path| send(at, path));
        let [alive, ready] = both.map(read);
        assert_eq!((status(&alive), status(&ready)), ("503", "503"), "{alive}\n{ready}");
        assert!(alive.contains("the main thread has not answered within 5 s"), "{alive}");
        // While it loads programs, nothing is wrong.
        is_loading.store(true, Ordering::SeqCst);
        assert_eq!(status(&read(send(at, "/healthz"))), "200");
    }
}
