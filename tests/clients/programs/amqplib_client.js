// Publishes and gets messages with amqplib: `publish EXCHANGE KEY` or `get QUEUE`.
const amqp = require("amqplib");

const properties = {
  contentType: "application/x-grün",
  contentEncoding: "identity",
  persistent: false,
  priority: 3,
  correlationId: "the correlation",
  replyTo: "the reply queue",
  expiration: 86400000,
  messageId: "the message",
  timestamp: 2000000000,
  type: "the type",
  userId: process.env.AMQP_USER,
  appId: "the application",
  headers: {
    text: "grün 緑",
    "empty text": "",
    bytes: Buffer.from([0, 255, 254]),
    true: true,
    false: false,
    byte: 7,
    short: -200,
    int: -(2 ** 31),
    long: 2 ** 40,
    "unsigned byte": { "!": "uint8", value: 200 },
    "unsigned short": { "!": "uint16", value: 65535 },
    "unsigned int": { "!": "uint32", value: 4294967295 },
    double: 0.1,
    tiny: Number.MIN_VALUE,
    float: { "!": "float", value: 0.1 },
    decimal: { "!": "decimal", value: { digits: 123456, places: 2 } },
    time: { "!": "timestamp", value: 2000000000 },
    nothing: null,
    list: [1, "two", [3.5, null], { four: Buffer.from([255]) }],
    "empty list": [],
    table: { one: 1, deeper: { two: 2 ** 40 } },
    "empty table": {},
    "x-mine": "kept",
  },
};

// The value with the name of its type at each level.
function typed(value) {
  if (value === null || value === undefined) return "null";
  if (Buffer.isBuffer(value)) return `bytes ${value.toString("hex")}`;
  if (Array.isArray(value)) return value.map(typed);
  if (typeof value !== "object") return `${typeof value} ${value}`;
  return Object.fromEntries(Object.entries(value).map(([name, inside]) => [name, typed(inside)]));
}

async function main([mode, ...names]) {
  const connection = await amqp.connect(process.env.AMQP_URL);
  const channel = await connection.createConfirmChannel();
  if (mode === "publish") {
    channel.publish(names[0], names[1], Buffer.from("\0ÿþ grün\n", "latin1"), { mandatory: true, ...properties });
    await channel.waitForConfirms();
  } else {
    const got = await channel.get(names[0], { noAck: true });
    const { headers, deliveryMode, ...rest } = got.properties;
    const shown = { routing_key: got.fields.routingKey, properties: typed(named(rest)), headers: typed(headers) };
    console.log(JSON.stringify({ ...shown, body: typed(got.content) }));
  }
  await connection.close();
}

// The names of AMQP, which the other programs print, too.
function named({ userId, expiration, ...others }) {
  return { user_id: userId, expiration, ...others };
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
