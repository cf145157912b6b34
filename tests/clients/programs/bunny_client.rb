# Publishes and gets messages with Bunny: `publish EXCHANGE KEY` or `get QUEUE`.
require "bigdecimal"
require "bunny"
require "json"

PROPERTIES = {
  content_type: "application/x-text",
  content_encoding: "identity",
  delivery_mode: 1,
  priority: 3,
  correlation_id: "the correlation",
  reply_to: "the reply queue",
  expiration: "86400000",
  message_id: "the message",
  timestamp: 2_000_000_000,
  type: "the type",
  user_id: ENV.fetch("AMQP_USER"),
  app_id: "the application",
}.freeze

HEADERS = {
  "text" => "grün 緑",
  "empty text" => "",
  "true" => true,
  "false" => false,
  "small" => 7,
  "negative" => -7,
  "beyond 32 bits" => 2**31,
  "largest" => 2**63 - 1,
  "smallest" => -2**63,
  "float" => 0.1,
  "tiny" => Float::MIN,
  "float of 32 bits" => AMQ::Protocol::Float32Bit.new(0.1),
  "decimal" => BigDecimal("1234.56"),
  "time" => Time.at(2_000_000_000),
  "nothing" => nil,
  "list" => [1, "two", [3.5], { "four" => "4" }],
  "empty list" => [],
  "table" => { "one" => 1, "deeper" => { "two" => 2**40 } },
  "empty table" => {},
  "x-mine" => "kept",
}.freeze

# The value with the name of its class at each level.
def typed(value)
  case value
  when Hash then value.to_h { |name, inside| [name, typed(inside)] }
  when Array then value.map { |inside| typed(inside) }
  when Time then "Time #{value.to_i}"
  when String then "String #{value.unpack1("H*")}"
  else "#{value.class} #{value.inspect}"
  end
end

connection = Bunny.new(ENV.fetch("AMQP_URL")).start
channel = connection.create_channel
case ARGV
in ["publish", exchange, key]
  channel.confirm_select
  body = "\x00\xff\xfe grün\n".b
  channel.basic_publish(body, exchange, key, mandatory: true, headers: HEADERS, **PROPERTIES)
  channel.wait_for_confirms or abort "the broker refused the message"
in ["get", queue]
  info, properties, body = channel.basic_get(queue, manual_ack: false)
  rest = properties.to_h.reject { |name, _| name == :headers }
  puts JSON.generate(
    routing_key: info.routing_key, properties: typed(rest), headers: typed(properties[:headers]), body: typed(body),
  )
end
connection.close
