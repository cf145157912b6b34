//! Where the page listens: a TCP address of this machine only, or a Unix socket of this user only.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use crate::error::UiError;

/// Where the page listens.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listen {
    /// An address such as `127.0.0.1:7672`. One that other machines can reach is an error, unless
    /// it is allowed.
    Tcp(String),
    /// The path of a Unix socket, which only this user can open. For a jump host:
    /// `ssh -L 7672:/path/of/socket host`.
    Socket(PathBuf),
}

#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener, SocketAddr),
    Socket { listener: UnixListener, _file: SocketFile },
}

/// Anything that bytes go through.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

impl Listener {
    pub(super) async fn open(listen: &Listen, allow_remote: bool) -> Result<Self, UiError> {
        match listen {
            Listen::Tcp(address) => tcp(address, allow_remote).await,
            Listen::Socket(path) => {
                let opened =
                    socket(path).map_err(|error| UiError::Socket { path: path.clone(), error });
                opened.map(|(listener, _file)| Self::Socket { listener, _file })
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener, _) => Box::new(listener.accept().await?.0),
            Self::Socket { listener, .. } => Box::new(listener.accept().await?.0),
        })
    }
}

async fn tcp(address: &str, allow_remote: bool) -> Result<Listener, UiError> {
    let failed = |error| UiError::Listen { address: address.to_owned(), error };
    let resolved: Vec<_> = tokio::net::lookup_host(address).await.map_err(failed)?.collect();
    // Before it listens: not even for a moment may another machine reach it.
    if !allow_remote && resolved.iter().any(|address| !address.ip().is_loopback()) {
        return Err(UiError::Remote { address: address.to_owned() });
    }
    let listener = TcpListener::bind(&resolved[..]).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok(Listener::Tcp(listener, bound))
}

/// Removes the socket when the page is no longer served.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// A socket is created with the permissions of the process's umask, so it is created where nobody
/// else can go, and then moved.
fn socket(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(
                    io::ErrorKind::AddrInUse,
                    "another process listens on it",
                ));
            }
            fs::remove_file(path)?;
        }
        Ok(_) => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is something else"));
        }
        Err(_) => {}
    }
    let directory =
        path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = directory.join(format!(".rehop-{:08x}", rand::random::<u32>()));
    DirBuilder::new().mode(0o700).create(&private)?;
    let inside = private.join("s");
    let opened = UnixListener::bind(&inside).and_then(|listener| {
        fs::set_permissions(&inside, Permissions::from_mode(0o600))?;
        fs::rename(&inside, path)?;
        Ok(listener)
    });
    let _ = fs::remove_file(&inside);
    fs::remove_dir(&private)?;
    opened.map(|listener| (listener, SocketFile(path.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refused(address: &str) -> String {
        Listener::open(&Listen::Tcp(address.to_owned()), false).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn an_address_that_others_can_reach_is_refused_unless_it_is_allowed() {
        for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
            assert!(refused(address).await.contains("--allow-remote"), "{address}");
        }
        assert!(refused("nonsense").await.contains("an address has an IP and a port"));
        assert!(Listener::open(&Listen::Tcp("0.0.0.0:0".to_owned()), true).await.is_ok());
        assert!(Listener::open(&Listen::Tcp("127.0.0.1:0".to_owned()), false).await.is_ok());
    }

    #[tokio::test]
    async fn a_socket_is_for_this_user_only_and_goes_with_the_page() {
        let directory = std::env::temp_dir().join(format!("rehop-ui-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("page");
        let listen = Listen::Socket(path.clone());
        let open = || Listener::open(&listen, false);
        let listener = open().await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        assert!(open().await.unwrap_err().to_string().contains("another process listens"));
        drop(listener);
        assert!(!path.exists());
        // A process that was killed has left its socket behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        drop(open().await.unwrap());
        fs::write(&path, "a file").unwrap();
        assert!(open().await.unwrap_err().to_string().contains("choose another path"));
        fs::remove_dir_all(&directory).unwrap();
    }
}
