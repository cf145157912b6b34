//! Opens one connection: to one address, with the password and the certificates as they are now.

use std::path::Path;
use std::time::Duration;

use lapin::tcp::{OwnedIdentity, OwnedTLSConfig};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, ErrorKind};
use tokio::time::timeout;

use crate::error::{Error, Problem};
use crate::settings::BrokerSettings;
use crate::settings::address::shown;

/// Opens a connection to this address, within this time.
pub(super) async fn open(
    broker: &BrokerSettings,
    mut uri: AMQPUri,
    name: &str,
    limit: Duration,
) -> Result<Connection, Error> {
    let address = shown(&uri);
    if let Some(file) = &broker.password_file {
        uri.authority.userinfo.password = password(file)?;
    }
    let (user, encrypted) = (uri.authority.userinfo.username.clone(), uri.scheme == AMQPScheme::AMQPS);
    let properties = ConnectionProperties::default().with_connection_name(name.into());
    let tls = tls(broker).map_err(|problem| Error::Tls { broker: address.clone(), problem })?;
    let runtime = lapin::runtime::default_runtime()
        .map_err(|error| Error::Connect { broker: address.clone(), problem: Problem::from(&error) })?;
    let connecting = Connection::connect_uri_with_config(uri, properties, tls, runtime);
    let Ok(result) = timeout(limit, connecting).await else {
        return Err(Error::Timeout { what: format!("connecting to {address}"), limit });
    };
    result.map_err(|error| {
        let problem = Problem::from(&error);
        match error.kind() {
            ErrorKind::ProtocolError(answer) if [403, 530].contains(&answer.get_id()) => {
                Error::Login { broker: address, user, problem }
            }
            ErrorKind::IOError(cause) if encrypted && is_tls(cause) => Error::Tls { broker: address, problem },
            _ => Error::Connect { broker: address, problem },
        }
    })
}

/// The password in a file, without the line end that most editors and tools add.
pub(crate) fn password(file: &Path) -> Result<String, Error> {
    let unusable = |problem: Problem| Error::PasswordFile { path: file.to_owned(), problem };
    let text = std::fs::read_to_string(file).map_err(|error| unusable(Problem::new(error.to_string(), error)))?;
    let password = text.strip_suffix('\n').unwrap_or(&text);
    match password.strip_suffix('\r').unwrap_or(password) {
        "" => Err(unusable("it is empty".to_owned().into())),
        password => Ok(password.to_owned()),
    }
}

/// rustls reports a failed handshake as invalid data.
fn is_tls(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{InvalidData, InvalidInput, Other};
    matches!(error.kind(), InvalidData | InvalidInput | Other)
}

fn tls(broker: &BrokerSettings) -> Result<OwnedTLSConfig, Problem> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| Problem::new(format!("cannot read {}: {error}", path.display()), error))
    };
    let text = |path| {
        String::from_utf8(read(path)?)
            .map_err(|error| Problem::new(format!("{} is not a PEM file", path.display()), error.utf8_error()))
    };
    let identity = match (&broker.tls.cert_file, &broker.tls.key_file) {
        (Some(certificate), Some(key)) => Some(OwnedIdentity::PKCS8 { pem: read(certificate)?, key: read(key)? }),
        _ => None,
    };
    Ok(OwnedTLSConfig { identity, cert_chain: broker.tls.ca_file.as_ref().map(text).transpose()? })
}

#[cfg(test)]
mod tests {
    use super::password;

    #[test]
    fn a_password_file_is_read_without_its_line_end_and_must_not_be_empty() {
        let file = std::env::temp_dir().join(format!("rehop-password-{}", std::process::id()));
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            password(&file).map_err(|error| error.to_string())
        };
        for text in ["hunter2", "hunter2\n", "hunter2\r\n"] {
            assert_eq!(read(text).unwrap(), "hunter2");
        }
        assert_eq!(read(" a b \n\n").unwrap(), " a b \n");
        for text in ["", "\n"] {
            let error = read(text).unwrap_err();
            assert!(error.contains("it is empty") && error.contains("broker.password_file"), "{error}");
        }
        std::fs::remove_file(&file).unwrap();
        let error = password(&file).unwrap_err().to_string();
        assert!(error.contains(file.to_str().unwrap()) && error.contains("No such file"), "{error}");
    }
}
