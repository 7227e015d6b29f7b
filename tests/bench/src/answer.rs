//! Answers of HTTP/1.1, as far as a load generator has to read them: their status, and where they end.

/// More than any answer of the services that are measured.
const MOST: usize = 1 << 20;

/// What has come of the answer that is waited for.
#[derive(Default)]
pub struct Answer {
    bytes: Vec<u8>,
}

impl Answer {
    /// Takes what was read. The status, once the answer is whole; what comes after it would be an answer to nothing.
    pub fn take(&mut self, read: &[u8]) -> Result<Option<u16>, String> {
        self.bytes.extend_from_slice(read);
        let Some(head) = self.bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return if self.bytes.len() > MOST { Err("a head without end".into()) } else { Ok(None) };
        };
        let text = String::from_utf8_lossy(&self.bytes[..head]).into_owned();
        let whole = head + 4 + body_length(&text)?;
        if self.bytes.len() > whole {
            return Err("bytes that belong to no answer".into());
        }
        if self.bytes.len() < whole {
            return Ok(None);
        }
        self.bytes.clear();
        status(&text).map(Some)
    }
}

fn status(head: &str) -> Result<u16, String> {
    let word = head.split(' ').nth(1).unwrap_or_default();
    word.parse().map_err(|_| format!("'{word}' is no status"))
}

fn body_length(head: &str) -> Result<usize, String> {
    let fields = head.lines().filter_map(|line| line.split_once(':'));
    let mut found = fields.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let (_, value) = found.next().ok_or("an answer without Content-Length")?;
    value.trim().parse().map_err(|_| format!("Content-Length: '{value}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";

    #[test]
    fn an_answer_may_come_in_pieces_and_is_followed_by_another() {
        let mut answer = Answer::default();
        for piece in WHOLE[..WHOLE.len() - 1].chunks(7) {
            assert_eq!(answer.take(piece).unwrap(), None);
        }
        assert_eq!(answer.take(b"o").unwrap(), Some(200));
        assert_eq!(answer.take(WHOLE).unwrap(), Some(200));
    }

    #[test]
    fn other_statuses_are_told() {
        let refused = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(Answer::default().take(refused).unwrap(), Some(403));
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert!(Answer::default().take(chunked).unwrap_err().contains("Content-Length"));
        assert!(Answer::default().take(&[WHOLE, b"x"].concat()).unwrap_err().contains("no answer"));
        assert!(Answer::default().take(b"HTTP/1.1 ? OK\r\nContent-Length: 0\r\n\r\n").is_err());
    }
}
