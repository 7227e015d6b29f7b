//! Notes when the API server is heard: each part of an answer counts, as events and bookmarks of a watch are. The library that
//! watches does not pass bookmarks on.

use crate::heard::Heard;
use futures_util::future::{BoxFuture, FutureExt};
use http_body_util::BodyExt;
use http_body_util::combinators::MapFrame;
use hyper::body::{Body, Bytes, Frame};
use hyper::{Request, Response};
use std::task::{Context, Poll};
use tower::{Layer, Service};

/// A layer of a client.
pub struct Listening(pub Heard);

/// What the layer makes of a client.
pub struct Listener<S> {
    client: S,
    heard: Heard,
}

type Note = Box<dyn FnMut(Frame<Bytes>) -> Frame<Bytes> + Send>;

impl<S> Layer<S> for Listening {
    type Service = Listener<S>;

    fn layer(&self, client: S) -> Listener<S> {
        Listener { client, heard: self.0.clone() }
    }
}

impl<S, R, B> Service<Request<R>> for Listener<S>
where
    S: Service<Request<R>, Response = Response<B>>,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<MapFrame<B, Note>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context) -> Poll<Result<(), S::Error>> {
        self.client.poll_ready(context)
    }

    fn call(&mut self, request: Request<R>) -> Self::Future {
        let (heard, resource) = (self.heard.clone(), Heard::resource(request.uri().path()));
        resource.into_iter().for_each(|resource| heard.ask(resource));
        let answer = self.client.call(request);
        async move {
            let answer = answer.await?;
            // A refusal says nothing of the objects.
            let resource = resource.filter(|_| answer.status().is_success());
            let note: Note = Box::new(move |frame| {
                resource.into_iter().for_each(|resource| heard.note(resource));
                frame
            });
            Ok(answer.map(|body| body.map_frame(note)))
        }
        .boxed()
    }
}
