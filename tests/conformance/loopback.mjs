// node --import ./loopback.mjs SCRIPT: a listen() that names no host binds 127.0.0.1 instead of every interface.
import net from 'node:net';

const listen = net.Server.prototype._listen2;

net.Server.prototype._listen2 = function (address, port, addressType, backlog, fd, ...rest) {
  const nameless = address == null && typeof port === 'number' && port >= 0 && !(fd >= 0);
  return nameless
    ? listen.call(this, '127.0.0.1', port, 4, backlog, fd, ...rest)
    : listen.call(this, address, port, addressType, backlog, fd, ...rest);
};
