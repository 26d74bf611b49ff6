CREATE DATABASE guestbook CHARACTER SET utf8mb4;
CREATE USER lab@'%' IDENTIFIED BY 'lab';
GRANT ALL ON guestbook.* TO lab@'%';
