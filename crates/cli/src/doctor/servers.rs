//! Servers that give up root: whose configuration names the user of their workers.

use super::files::{Found, expand, find};
use super::units;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A server whose workers have another user than the one who starts it.
pub struct Server {
    /// The program's name, which a version may follow (php-fpm8.2).
    program: &'static str,
    /// Programs that start it: its unit may name one of these instead.
    starters: &'static [&'static str],
    /// Paths of configuration files; one `*` stands for any entry of a directory.
    files: &'static [&'static str],
    /// The words before the user's name on its line. None: no line of these files names a user.
    key: Option<&'static str>,
    /// The default user if there is no such line.
    otherwise: Option<&'static str>,
    /// For a unit that is a template: directories of which the last two names make up an instance, as `15/main` makes `15-main`.
    instances: Option<&'static str>,
}

const PLAIN: Server =
    Server { program: "", starters: &[], files: &[], key: Some("user"), otherwise: None, instances: None };

const SERVERS: &[Server] = &[
    Server { program: "nginx", files: &["etc/nginx/nginx.conf"], otherwise: Some("nobody"), ..PLAIN },
    Server { program: "haproxy", files: &["etc/haproxy/haproxy.cfg"], ..PLAIN },
    Server {
        program: "apache2",
        starters: &["apachectl", "apache2ctl"],
        files: &["etc/apache2/envvars"],
        key: Some("export APACHE_RUN_USER"),
        ..PLAIN
    },
    Server { program: "lighttpd", files: &["etc/lighttpd/lighttpd.conf"], key: Some("server.username"), ..PLAIN },
    Server { program: "php-fpm", files: &["etc/php/*/fpm/pool.d/*"], ..PLAIN },
    Server {
        program: "memcached",
        starters: &["systemd-memcached-wrapper"],
        files: &["etc/memcached.conf"],
        key: Some("-u"),
        ..PLAIN
    },
    Server {
        program: "mariadbd",
        files: &["etc/mysql/mariadb.conf.d/*", "etc/mysql/conf.d/*", "etc/mysql/my.cnf"],
        ..PLAIN
    },
    Server {
        program: "mysqld",
        files: &["etc/mysql/mysql.conf.d/*", "etc/mysql/conf.d/*", "etc/mysql/my.cnf"],
        ..PLAIN
    },
    // Debian's unit has no user: pg_ctlcluster takes the cluster's owner.
    Server {
        program: "postgres",
        starters: &["pg_ctlcluster"],
        files: &["etc/postgresql/*/*/postgresql.conf"],
        key: None,
        otherwise: Some("postgres"),
        instances: Some("etc/postgresql/*/*"),
    },
];

impl Server {
    /// The server that this program is, or starts, and the user of its workers. None: it is another program, or its workers stay root.
    pub fn of(program: &Path, root: &Path) -> Option<(&'static Server, Found)> {
        let server = SERVERS.iter().find(|server| server.is(program))?;
        Some((server, server.user(root)?))
    }

    fn is(&self, program: &Path) -> bool {
        let name = program.file_name().and_then(OsStr::to_str).unwrap_or_default();
        let is_version = |rest: &str| rest.chars().all(|c| c.is_ascii_digit() || c == '.');
        self.starters.contains(&name) || name.strip_prefix(self.program).is_some_and(is_version)
    }

    fn user(&self, root: &Path) -> Option<Found> {
        let files: Vec<_> = self.files.iter().flat_map(|pattern| expand(root, pattern)).collect();
        let named = self.key.and_then(|key| files.iter().find_map(|file| find(file, key)));
        named.or_else(|| self.default_user(&files)).filter(Found::is_another)
    }

    fn default_user(&self, files: &[PathBuf]) -> Option<Found> {
        Some(Found { user: self.otherwise?.into(), file: files.first()?.clone(), line: None })
    }

    /// The services of systemd that start it. `program`: it, or one of those that start it.
    pub fn services(&self, program: &Path, root: &Path) -> Vec<String> {
        let starters = self.starters.iter().map(|name| OsStr::new(*name));
        let names: Vec<&OsStr> = program.file_name().into_iter().chain(starters).collect();
        units::services(&units::starting(&names, root), &self.instances(root))
    }

    fn instances(&self, root: &Path) -> Vec<String> {
        let places = self.instances.map(|pattern| expand(root, pattern)).unwrap_or_default();
        let instance = |place: &PathBuf| {
            let (last, before) = (place.file_name()?, place.parent()?.file_name()?);
            Some(format!("{}-{}", before.to_str()?, last.to_str()?))
        };
        places.iter().filter_map(instance).collect()
    }
}
