// server-asio --mode MODE [--tls CERTIFICATE KEY] [--port PORT]: Boost.Asio in plaintext and with OpenSSL,
// modeled on its echo examples.
#include "../../Load/pattern.h"

// Boost 1.74 does not include this itself.
#include <utility>

#include <array>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <csignal>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <vector>

namespace asio = boost::asio;
using asio::ip::tcp;
using error_code = boost::system::error_code;

enum class Mode { echo, receive, source };
static Mode mode;
static std::vector<uint8_t> pattern;

template <typename Stream>
class Session : public std::enable_shared_from_this<Session<Stream>> {
public:
    explicit Session(Stream stream) : stream(std::move(stream)) {}

    void start() {
        if constexpr (requires { stream.async_handshake(asio::ssl::stream_base::server, [](error_code) {}); }) {
            stream.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
                if (!error) self->begin();
            });
        } else {
            begin();
        }
    }

private:
    void begin() {
        switch (mode) {
        case Mode::echo: return echo();
        case Mode::receive: return read_header();
        case Mode::source: return read_request();
        }
    }

    void echo() {
        stream.async_read_some(asio::buffer(bytes), [self = this->shared_from_this()](error_code error, size_t count) {
            if (error) return self->end(error);
            asio::async_write(self->stream, asio::buffer(self->bytes, count), [self](error_code error, size_t) {
                if (!error) self->echo();
            });
        });
    }

    void read_header() {
        asio::async_read(stream, asio::buffer(numbers, 8), [self = this->shared_from_this()](error_code error, size_t) {
            if (error) return self->end(error);
            self->position = self->right = 0;
            self->receive();
        });
    }

    void receive() {
        stream.async_read_some(asio::buffer(bytes), [self = this->shared_from_this()](error_code error, size_t count) {
            if (error) return self->end(error);
            if (self->bytes[0] == pattern_byte(self->position) && self->bytes[count - 1] == pattern_byte(self->position + count - 1))
                self->right += count;
            self->position += count;
            if (self->position < self->numbers[0]) return self->receive();
            asio::async_write(self->stream, asio::buffer(&self->right, 8), [self](error_code error, size_t) {
                if (!error) self->read_header();
            });
        });
    }

    void read_request() {
        asio::async_read(stream, asio::buffer(numbers, 16), [self = this->shared_from_this()](error_code error, size_t) {
            if (error) return self->end(error);
            self->position = 0;
            while (pattern.size() < self->numbers[1] + pattern_period) pattern.push_back(pattern_byte(pattern.size()));
            self->send();
        });
    }

    // Writes a batch as one sequence of buffers.
    void send() {
        auto [total, chunk] = numbers;
        batch.clear();
        for (uint64_t sent = 0; sent < 131072 && position < total;) {
            uint64_t part = std::min(total - position, chunk);
            batch.push_back(asio::buffer(pattern.data() + position % pattern_period, part));
            position += part;
            sent += part;
        }
        if (batch.empty()) return read_request();
        asio::async_write(stream, batch, [self = this->shared_from_this()](error_code error, size_t) {
            if (!error) self->send();
        });
    }

    void end(error_code error) {
        if constexpr (requires { stream.async_shutdown([](error_code) {}); }) {
            if (error == asio::error::eof) stream.async_shutdown([self = this->shared_from_this()](error_code) {});
        }
    }

    Stream stream;
    std::array<uint8_t, 65536> bytes;
    std::array<uint64_t, 2> numbers;
    uint64_t position = 0, right = 0;
    std::vector<asio::const_buffer> batch;
};

static void accept(tcp::acceptor &acceptor, asio::ssl::context *context) {
    acceptor.async_accept([&acceptor, context](error_code error, tcp::socket socket) {
        if (!error) {
            socket.set_option(tcp::no_delay(true));
            if (context) {
                using Stream = asio::ssl::stream<tcp::socket>;
                std::make_shared<Session<Stream>>(Stream(std::move(socket), *context))->start();
            } else {
                std::make_shared<Session<tcp::socket>>(std::move(socket))->start();
            }
        }
        accept(acceptor, context);
    });
}

int main(int count, char **words) {
    asio::ssl::context tls(asio::ssl::context::tlsv13_server);
    bool is_secure = false;
    int port = 0;
    for (int i = 1; i + 1 < count; i += 2) {
        std::string word = words[i], value = words[i + 1];
        if (word == "--mode" && (value == "echo" || value == "receive" || value == "source")) {
            mode = value == "echo" ? Mode::echo : value == "receive" ? Mode::receive : Mode::source;
        } else if (word == "--port") {
            port = std::stoi(value);
        } else if (word == "--tls" && i + 2 < count) {
            tls.use_certificate_chain_file(value);
            tls.use_private_key_file(words[i++ + 2], asio::ssl::context::pem);
            SSL_CTX_set_num_tickets(tls.native_handle(), 0);
            SSL_CTX_set_options(tls.native_handle(), SSL_OP_NO_TICKET);
            SSL_CTX_set_session_cache_mode(tls.native_handle(), SSL_SESS_CACHE_OFF);
            is_secure = true;
        } else {
            return std::cerr << "server-asio: " << word << "?\n", 2;
        }
    }
    rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    asio::io_context loop(1);
    tcp::acceptor acceptor(loop, {asio::ip::address_v4::loopback(), static_cast<unsigned short>(port)});
    std::cout << acceptor.local_endpoint().port() << std::endl;
    accept(acceptor, is_secure ? &tls : nullptr);
    loop.run();
}
