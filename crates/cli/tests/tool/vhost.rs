//! A virtual host for one test, so that the names of queues in a page can be used as they are, on a
//! broker that tests share.

use rehop_testing::{Broker, Client, Namespace};
use serde_json::json;

use crate::folder::Folder;

pub(crate) struct Vhost {
    /// Its name, which no other test has.
    pub(crate) name: String,
    /// The broker's URL, with this virtual host.
    pub(crate) url: url::Url,
    pub(crate) client: Client,
    /// Where its services and tools run.
    pub(crate) folder: Folder,
    users: Vec<String>,
}

impl Vhost {
    /// For a broker with the management API.
    pub(crate) async fn new(test: &str) -> Self {
        let (shared, namespace) = (Broker::shared().await, Namespace::new(test));
        let mut url: url::Url = shared.amqp_url().parse().unwrap();
        let management = shared.management().unwrap();
        management.put(&format!("vhosts/{}", namespace.name()), &json!({})).await.unwrap();
        url.set_path(namespace.name());
        let name = namespace.name().to_owned();
        let user = url.username().to_owned();
        allow(&name, &user, [".*"; 3]).await;
        let client = Client::connect(url.as_str()).await.unwrap();
        Self { name, url, client, folder: Folder::new(&namespace), users: Vec::new() }
    }

    /// Adds a user with these permissions: configure, write, read. Returns the URL with which it
    /// logs in.
    pub(crate) async fn user(&mut self, name: &str, permissions: [&str; 3]) -> url::Url {
        let name = format!("{name}-{}", self.name);
        Broker::shared().await.management().unwrap().add_user(&name, "pass").await.unwrap();
        allow(&self.name, &name, permissions).await;
        let mut url = self.url.clone();
        url.set_username(&name).unwrap();
        url.set_password(Some("pass")).unwrap();
        self.users.push(name);
        url
    }

    pub(crate) async fn delete(self) {
        let management = Broker::shared().await.management().unwrap();
        for user in self.users {
            management.delete(&format!("users/{user}")).await.unwrap();
        }
        management.delete(&format!("vhosts/{}", self.name)).await.unwrap();
    }
}

async fn allow(vhost: &str, user: &str, [configure, write, read]: [&str; 3]) {
    let permissions = json!({ "configure": configure, "write": write, "read": read });
    let management = Broker::shared().await.management().unwrap();
    management.put(&format!("permissions/{vhost}/{user}"), &permissions).await.unwrap();
}
