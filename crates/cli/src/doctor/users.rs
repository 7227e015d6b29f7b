//! Whether a program's processes change their user: a server that root starts often runs its workers as another user, with which
//! clients of other users may not share memory unless the broker's file has a line that says so.

use super::Check;
use super::servers::Server;
use super::units;
use sidestep_broker::users;
use std::path::Path;

/// Who asks.
#[derive(Clone, Copy)]
pub struct Asker {
    /// The user who would start the program.
    starter: u32,
    /// The user whose programs are its clients.
    client: u32,
}

impl Asker {
    /// The user of this process; of the clients, if root asks by sudo, the one who has called that.
    pub fn of_this_process() -> Asker {
        let starter = rustix::process::geteuid().as_raw();
        let caller = std::env::var("SUDO_UID").ok().and_then(|uid| uid.parse().ok());
        Asker { starter, client: caller.filter(|_| starter == 0).unwrap_or(starter) }
    }

    pub fn is_root(&self) -> bool {
        self.starter == 0
    }
}

/// `root`: directory that is taken for the root of the file system.
pub fn check(program: &Path, asker: Asker, root: &Path) -> Check {
    let name = "users";
    // What another user than root starts stays that user's. A service is started by systemd, whoever asks.
    match Workers::of(program, root).filter(|workers| asker.is_root() || !workers.services.is_empty()) {
        Some(workers) if users::by_name(&workers.user) == Ok(Some(asker.client)) => {
            Check::ok(name, format!("{}, who asks", workers.found))
        }
        Some(workers) => Check::limited(name, workers.found.clone(), workers.advice(asker)),
        None if asker.is_root() => Check::ok(name, "no file is known that gives it another user than root"),
        None => Check::ok(name, format!("started by user {}, it stays that user's", asker.starter)),
    }
}

/// The processes that serve a program's clients, and that are not root's.
struct Workers {
    user: String,
    /// Which user that is, and which file says so.
    found: String,
    /// The services of systemd in which they are.
    services: Vec<String>,
    /// Also root's shell starts them, outside of every service.
    by_hand: bool,
}

impl Workers {
    fn of(program: &Path, root: &Path) -> Option<Workers> {
        if let Some((server, found)) = Server::of(program, root) {
            let services = server.services(program, root);
            let place = format!("its workers become {} ({})", found.user, found.place());
            return Some(Workers { user: found.user, found: place, services, by_hand: true });
        }
        let (unit, found) = units::with_user(program, root)?;
        let place = format!("its unit runs it as {} ({})", found.user, found.place());
        Some(Workers { user: found.user, found: place, services: units::services(&[unit], &[]), by_hand: false })
    }

    /// What lets them share memory with programs of the client.
    fn advice(&self, asker: Asker) -> String {
        let client = asker.client;
        let of_users = format!("allow = [{{uids = [{:?}, {client}]}}]", self.user);
        let of_services = format!("allow = [{{services = {:?}, uids = [{client}]}}]", self.services);
        let line = if self.services.is_empty() { &of_users } else { &of_services };
        let write = if asker.is_root() { "write" } else { "root must write" };
        let mut advice = format!(
            "{write} the line `{line}` into /etc/sidestep/config.toml and run `systemctl try-reload-or-restart sidestepd`, so that it \
             shares memory with clients of user {client}. A file has the key `allow` once: if it is there, put the rule into its list \
             (docs/CONFIG.md: who may share memory)"
        );
        if self.by_hand && !self.services.is_empty() {
            advice += &format!(". If not the unit but root's shell starts it, the line is `{of_users}`");
        }
        advice
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    const ROOT: Asker = Asker { starter: 0, client: 0 };
    /// No user of the machine's databases has this number.
    const ALICE: u32 = 3_000_001;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn of(program: &str, files: &[(&str, &str)]) -> Check {
        check(Path::new(program), ROOT, root(files).path())
    }

    #[test]
    fn workers_of_another_user_are_noticed() {
        for (program, file, text, line, user) in [
            ("/usr/sbin/nginx", "etc/nginx/nginx.conf", "# user me;\nuser www-data;\nworkers 2;\n", 2, "www-data"),
            ("/usr/sbin/nginx", "etc/nginx/nginx.conf", "user\twww-data www-data ;", 1, "www-data"),
            ("haproxy", "etc/haproxy/haproxy.cfg", "global\n\tuserlist x\n\tuser haproxy\n", 3, "haproxy"),
            ("apache2", "etc/apache2/envvars", "\nexport APACHE_RUN_USER=www-data\n", 2, "www-data"),
            ("apachectl", "etc/apache2/envvars", "\nexport APACHE_RUN_USER=www-data\n", 2, "www-data"),
            ("lighttpd", "etc/lighttpd/lighttpd.conf", "server.username = \"www-data\"\n", 1, "www-data"),
            ("php-fpm8.2", "etc/php/8.2/fpm/pool.d/www.conf", "; user = x\nuser = www-data\n", 2, "www-data"),
            ("memcached", "etc/memcached.conf", "-m 64\n-u memcache\n", 2, "memcache"),
            (
                "mariadbd",
                "etc/mysql/mariadb.conf.d/50-server.cnf",
                "[mysqld]\nuser                    = mysql\n",
                2,
                "mysql",
            ),
        ] {
            let check = of(program, &[(file, text)]);
            assert_eq!(check.verdict, Verdict::Limited, "{program}: {check:?}");
            assert!(check.found.contains(&format!("become {user} (")), "{check:?}");
            assert!(check.found.ends_with(&format!("{file}:{line})")), "{check:?}");
            let advice = check.advice.unwrap();
            assert!(advice.contains(&format!("`allow = [{{uids = [\"{user}\", 0]}}]`")), "{advice}");
        }
    }

    const NGINX: [(&str, &str); 2] = [
        ("etc/nginx/nginx.conf", "user no-such-user;\n"),
        ("usr/lib/systemd/system/nginx.service", "[Service]\nExecStart=/usr/sbin/nginx -g 'daemon on;'\n"),
    ];

    #[test]
    fn the_line_names_the_services_and_the_user_who_asks() {
        let apache = [
            ("etc/apache2/envvars", "export APACHE_RUN_USER=no-such-user\n"),
            ("usr/lib/systemd/system/apache2.service", "[Service]\nExecStart=/usr/sbin/apachectl start\n"),
            ("usr/lib/systemd/system/apache2@.service", "[Service]\nExecStart=/usr/sbin/apachectl start\n"),
        ];
        let start = "[Service]\nExecStart=-/usr/bin/pg_ctlcluster --skip-systemctl-redirect %i start\n";
        let postgres = [
            ("etc/postgresql/13/old/postgresql.conf", ""),
            ("etc/postgresql/15/main/postgresql.conf", ""),
            ("usr/lib/systemd/system/postgresql@.service", start),
        ];
        let unit = "[Service]\nUser=no-such-user\nExecStart=/usr/lib/rabbitmq/bin/rabbitmq-server\n";
        let rabbitmq = [("usr/lib/systemd/system/rabbitmq-server.service", unit)];
        for (program, files, services) in [
            ("/usr/sbin/nginx", &NGINX[..], r#"["nginx.service"]"#),
            ("/usr/sbin/apache2", &apache[..], r#"["apache2.service"]"#),
            ("apachectl", &apache[..], r#"["apache2.service"]"#),
            (
                "/usr/lib/postgresql/15/bin/postgres",
                &postgres[..],
                r#"["postgresql@13-old.service", "postgresql@15-main.service"]"#,
            ),
            ("/usr/sbin/rabbitmq-server", &rabbitmq[..], r#"["rabbitmq-server.service"]"#),
        ] {
            let root = root(files);
            let line = format!(
                "the line `allow = [{{services = {services}, uids = [{ALICE}]}}]` into /etc/sidestep/config.toml"
            );
            for (starter, written) in [(0, format!("write {line}")), (ALICE, format!("root must write {line}"))] {
                let check = check(Path::new(program), Asker { starter, client: ALICE }, root.path());
                assert_eq!(check.verdict, Verdict::Limited, "{program}: {check:?}");
                assert!(check.advice.as_ref().unwrap().starts_with(&written), "{written} is not in {check:?}");
            }
        }
    }

    /// The cgroup of a service has the unit's own name.
    #[test]
    fn an_alias_of_a_unit_is_no_other_service() {
        let root = root(&NGINX);
        let aliases = root.path().join("etc/systemd/system");
        std::fs::create_dir_all(&aliases).unwrap();
        std::os::unix::fs::symlink("../../../usr/lib/systemd/system/nginx.service", aliases.join("web.service"))
            .unwrap();
        let advice = check(Path::new("nginx"), ROOT, root.path()).advice.unwrap();
        assert!(advice.contains(r#"services = ["nginx.service"], "#), "{advice}");
        assert!(advice.contains("the key `allow` once"), "{advice}");
    }

    /// A process of root's shell is in no service.
    #[test]
    fn for_a_server_that_a_shell_starts_users_are_named() {
        let line = r#"`allow = [{uids = ["no-such-user", 0]}]`"#;
        let with_unit = of("nginx", &NGINX).advice.unwrap();
        assert!(with_unit.ends_with(line), "{with_unit}");
        let without = of("nginx", &NGINX[..1]).advice.unwrap();
        assert!(
            without.starts_with(&format!("write the line {line} into")) && !without.contains("services"),
            "{without}"
        );
    }

    #[test]
    fn workers_of_the_user_who_asks_need_no_line() {
        let files = [("etc/nginx/nginx.conf", "user daemon;\n"), NGINX[1]];
        let daemon = users::by_name("daemon").unwrap().unwrap();
        let check = check(Path::new("nginx"), Asker { starter: daemon, client: daemon }, root(&files).path());
        assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
    }

    /// nginx has a default user from its build.
    #[test]
    fn without_a_line_the_default_counts() {
        for files in [&[("etc/nginx/nginx.conf", "worker_processes 2;\n#user root;\n")][..], &[]] {
            let check = of("nginx", files);
            assert_eq!(check.verdict, Verdict::Limited, "{check:?}");
            assert!(check.found.contains("become nobody (") && check.found.contains("names no user"), "{check:?}");
        }
        assert_eq!(of("haproxy", &[("etc/haproxy/haproxy.cfg", "global\n")]).verdict, Verdict::Ok);
        assert_eq!(of("postgres", &[]).verdict, Verdict::Ok, "there is no cluster");
    }

    #[test]
    fn a_unit_that_names_a_user_is_noticed() {
        let unit = "[Service]\nExecStart=-/usr/bin/redis-server /etc/redis.conf\nUser=redis\n";
        let check = of("/usr/bin/redis-server", &[("usr/lib/systemd/system/redis-server.service", unit)]);
        assert_eq!(check.verdict, Verdict::Limited);
        assert!(check.found.contains("runs it as redis (") && check.found.ends_with("redis-server.service:3)"));
        let other = of("/usr/bin/redis-cli", &[("usr/lib/systemd/system/redis-server.service", unit)]);
        assert_eq!(other.verdict, Verdict::Ok);
    }

    #[test]
    fn a_unit_that_runs_a_script_says_nothing_of_its_interpreter() {
        for program in ["/bin/sh", "/usr/bin/python3.11", "/usr/bin/java"] {
            let unit = format!("[Service]\nExecStart={program} /usr/libexec/start.sh\nUser=tomcat\n");
            let check = of(program, &[("usr/lib/systemd/system/tomcat10.service", &unit)]);
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn root_stays_root_and_others_stay_themselves() {
        assert_eq!(of("nginx", &[("etc/nginx/nginx.conf", "userid on;\nuser root;\n")]).verdict, Verdict::Ok);
        assert_eq!(of("mysqldump", &[("etc/mysql/my.cnf", "user = mysql\n")]).verdict, Verdict::Ok);
        let alice = Asker { starter: ALICE, client: ALICE };
        let root = root(&NGINX[..1]);
        assert_eq!(check(Path::new("nginx"), alice, root.path()).verdict, Verdict::Ok, "no unit starts it");
        assert_eq!(check(Path::new("sh"), ROOT, root.path()).verdict, Verdict::Ok);
    }
}
