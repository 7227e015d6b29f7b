//! Round by round: behave, lie, be silent; and what must be true all the time.

use crate::Args;
use crate::attack::{Attacker, Talk};
use crate::disguise::Disguise;
use crate::stage::{Actor, Stage, honest};
use crate::{lies, mischief};
use sidestep_abi::Reason;
use sidestep_broker::client::Operator;
use sidestep_posix::rng::Rng;
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

/// Processes that attack at once, as far as the broker and the victims can tell.
pub const ATTACKERS: usize = 2;
const SERVERS: [&str; 4] = ["block", "poll", "epoll", "epollet"];

/// Counts, and says what failed.
#[derive(Default)]
struct Verdict {
    passed: u32,
    failed: u32,
}

impl Verdict {
    fn judge(&mut self, what: Result<(), String>) -> bool {
        match &what {
            Ok(()) => self.passed += 1,
            Err(why) => {
                self.failed += 1;
                eprintln!("FAIL  {why}");
            }
        }
        what.is_ok()
    }
}

/// What a run has seen.
#[derive(Default)]
struct Tally {
    rounds: u32,
    attackers: usize,
    lies: u64,
    /// By victim: attacks while it was in the ring.
    by_ring: BTreeMap<String, u32>,
    slowest: Duration,
}

struct Run<'a> {
    args: &'a Args,
    stage: Stage,
    /// Servers, then the client.
    victims: Vec<Actor>,
    ports: Vec<u16>,
    /// Where the victim client calls.
    listener: TcpListener,
    honest: Vec<Actor>,
    rng: Rng,
    verdict: Verdict,
    tally: Tally,
}

pub fn run(args: &Args) -> ExitCode {
    let clock = || SystemTime::UNIX_EPOCH.elapsed().map_or(1, |t| t.as_nanos() as u64 % 1_000_000);
    let seed = args.seed.unwrap_or_else(clock);
    eprintln!("hostile: seed {seed}, {} s", args.seconds);
    let mut run = Run::start(args, Rng::new(seed));
    let end = Instant::now() + Duration::from_secs(args.seconds);
    while Instant::now() < end && run.round() {}
    run.finish(seed)
}

impl Run<'_> {
    fn start(args: &Args, rng: Rng) -> Run<'_> {
        let stage = Stage::new();
        let mut victims: Vec<Actor> = SERVERS.iter().map(|way| stage.upgraded(way, &["serve", way])).collect();
        let ports: Vec<u16> = victims.iter_mut().map(|v| v.answer().expect("a port") as u16).collect();
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        listener.set_nonblocking(true).expect("non-blocking");
        let hostile = listener.local_addr().expect("address").port().to_string();
        let texts: Vec<String> = ports.iter().map(u16::to_string).collect();
        let mut ask = vec!["ask"];
        ask.extend(texts.iter().map(String::as_str));
        let honest = vec![stage.upgraded("honest client", &ask)];
        ask.extend(["--hostile", &hostile]);
        victims.push(stage.upgraded("client", &ask));
        let (verdict, tally) = Default::default();
        Run { args, stage, victims, ports, listener, honest, rng, verdict, tally }
    }

    /// False: there is no point in going on.
    fn round(&mut self) -> bool {
        self.tally.rounds += 1;
        // Honest connections work while others are attacked.
        self.clients(|c| c.order(3));
        let mut attackers: Vec<_> =
            (0..ATTACKERS).map(|_| Attacker::join(&self.stage.address, &mut self.rng)).collect();
        let mut told = Vec::new();
        let mut talks: Vec<Talk> = Vec::new();
        for attacker in &mut attackers {
            for victim in 0..self.victims.len() {
                if let Some((talk, said)) = self.attack(attacker, victim) {
                    talks.push(talk);
                    told.push(format!("{}: {said}", self.victims[victim].name));
                }
            }
            self.tally.attackers += 1;
        }
        let answered = self.answers();
        let fine = self.check(answered, &told) & self.silence(&told) & self.bytes(&mut talks, &told);
        if self.rng.below(4) == 0 {
            attackers.clear(); // before its connections end
        }
        drop(talks);
        let answered = honest(&mut self.honest, 1).and_then(|_| honest(&mut self.victims[SERVERS.len()..], 1));
        let answered = answered.map(|_| ());
        let fine = fine & self.check(answered, &told);
        let steady: Vec<_> = self.victims.iter_mut().map(Actor::steady).collect();
        fine & steady.into_iter().all(|s| self.check(s, &told))
    }

    fn check(&mut self, what: Result<(), String>, told: &[String]) -> bool {
        let round = self.tally.rounds;
        self.verdict.judge(what.map_err(|why| format!("round {round}: {why}\n      after {}", told.join("\n      "))))
    }

    fn clients(&mut self, each: impl FnMut(&mut Actor)) {
        self.honest.iter_mut().chain(self.victims[SERVERS.len()..].iter_mut()).for_each(each);
    }

    fn answers(&mut self) -> Result<(), String> {
        let mut worst = Some(Duration::ZERO);
        self.clients(|c| worst = worst.zip(c.answer()).map(|(w, us)| w.max(Duration::from_micros(us))));
        self.tally.slowest = self.tally.slowest.max(worst.unwrap_or_default());
        worst.map(|_| ()).ok_or_else(|| "an honest connection beside the attack has failed".into())
    }

    /// One connection with this victim: legal, then not. Says what was done.
    fn attack(&mut self, attacker: &mut Attacker, victim: usize) -> Option<(Talk, String)> {
        let _user = Disguise::attacker();
        let calls = victim < SERVERS.len();
        let stream = if calls { TcpStream::connect(("127.0.0.1", self.ports[victim])).ok()? } else { self.called()? };
        let late = self.rng.below(2) == 0;
        let mut talk = attacker.pair(stream, calls, late)?;
        if attacker.behave(&mut talk, calls, &mut self.rng) {
            *self.tally.by_ring.entry(self.victims[victim].name.clone()).or_default() += 1;
        }
        let said = self.lie(attacker, &mut talk);
        attacker.let_doorbells_go();
        if self.args.verbose {
            eprintln!("round {}, {}: {said}", self.tally.rounds, self.victims[victim].name);
        }
        Some((talk, said))
    }

    /// The newest call of the victim client: those before were left behind by earlier rounds.
    fn called(&self) -> Option<TcpStream> {
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline {
            if let Ok((stream, _)) = self.listener.accept() {
                return Some(stream);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    fn lie(&mut self, attacker: &mut Attacker, talk: &mut Talk) -> String {
        let rng = &mut self.rng;
        let mut said = Vec::new();
        let turn = self.tally.attackers;
        // In the first turns the crafted ones come alone.
        let random: u64 =
            if turn < lies::CRAFTED.len() && turn.is_multiple_of(2) { 0 } else { *rng.pick(&[0, 1, 3, 30, 1000]) };
        for n in 0..random {
            let lie = if rng.below(20) == 0 {
                mischief::any(attacker, talk, &self.stage.address, rng).to_owned()
            } else {
                lies::any(talk, rng)
            };
            if n >= random.saturating_sub(12) {
                said.push(lie);
            }
            if rng.below(8) == 0 {
                attacker.ring(talk);
            }
            if rng.below(16) == 0 {
                std::thread::sleep(Duration::from_micros(rng.below(3000)));
            }
        }
        // Each crafted lie has its turn: alone, or at the end of random ones.
        if random == 0 || turn < lies::CRAFTED.len() || rng.below(2) == 0 {
            let (name, tell) = lies::CRAFTED[turn % lies::CRAFTED.len()];
            tell(talk);
            said.push(name.to_owned());
        }
        self.tally.lies += random + 1;
        attacker.ring(talk);
        said.push(mischief::any(attacker, talk, &self.stage.address, rng).to_owned());
        said.join("; ")
    }

    /// The attacker does nothing, nobody else wants anything: neither do the victims and the broker.
    fn silence(&mut self, told: &[String]) -> bool {
        std::thread::sleep(Duration::from_millis(100)); // what was under way comes to its end
        let everybody = || self.victims.iter().chain([&self.stage.broker]).chain(&self.honest);
        let before: Vec<_> = everybody().map(Actor::look).collect();
        std::thread::sleep(Duration::from_secs(1));
        let gone = |a: &Actor| format!("{} is gone", a.name);
        let quiet: Vec<_> =
            everybody().zip(before).map(|(a, look)| look.ok_or_else(|| gone(a)).and_then(|l| a.quiet(l))).collect();
        quiet.into_iter().fold(true, |fine, what| self.check(what, told) & fine)
    }

    /// Nothing came from beside a ring, and nothing went there.
    fn bytes(&mut self, talks: &mut [Talk], told: &[String]) -> bool {
        talks.iter_mut().fold(true, |fine, talk| {
            talk.last_words();
            let (strange, spoilt) = (talk.strange.len(), talk.spoilt());
            let read = if strange == 0 { Ok(()) } else { Err(format!("{strange} bytes from outside of the ring")) };
            let wrote = if spoilt == 0 { Ok(()) } else { Err(format!("{spoilt} bytes written outside of the ring")) };
            self.check(read, told) & self.check(wrote, told) & fine
        })
    }

    fn finish(mut self, seed: u64) -> ExitCode {
        let status = Operator::connect(&self.stage.address).and_then(|o| o.status());
        let reasons = status.map(|s| s.reasons).unwrap_or_default();
        let ended = reasons.get(Reason::BrokenPeer.name()).copied().unwrap_or(0);
        self.verdict.judge(if ended > 0 { Ok(()) } else { Err("no connection was ended as broken-peer".into()) });
        for name in SERVERS.into_iter().chain(["client"]) {
            let seen = self.tally.by_ring.get(name).copied().unwrap_or(0);
            let seen = if seen > 0 { Ok(()) } else { Err(format!("{name} was never attacked while in the ring")) };
            self.verdict.judge(seen);
        }
        let Tally { rounds, lies, by_ring, slowest, .. } = &self.tally;
        eprintln!("{rounds} rounds, {lies} lies, {ended} connections ended as broken-peer, all reasons {reasons:?}");
        eprintln!("attacked in the ring: {by_ring:?}; slowest honest answer {slowest:?}");
        let Verdict { passed, failed } = self.verdict;
        if self.args.json {
            let result = serde_json::json!({"seed": seed, "rounds": rounds, "lies": lies, "by_ring": by_ring,
                "reasons": reasons, "slowest_us": slowest.as_micros() as u64, "passed": passed, "failed": failed});
            println!("{result}");
        }
        println!("hostile: {passed} passed, {failed} failed");
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
